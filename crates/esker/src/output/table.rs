//! Columns of text.

use super::HEADING;

/// Where a column's text stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Align {
    Left,
    Right,
}

/// A table with a header, printed with two spaces before each column.
pub struct Table {
    header: Vec<(String, Align)>,
    rows: Vec<Vec<String>>,
}

impl Table {
    pub fn new(header: impl IntoIterator<Item = (impl Into<String>, Align)>) -> Table {
        let header = header.into_iter().map(|(name, align)| (name.into(), align)).collect();
        Table { header, rows: Vec::new() }
    }

    /// Adds a row, one text per column.
    pub fn row(&mut self, cells: impl IntoIterator<Item = String>) {
        let cells: Vec<String> = cells.into_iter().collect();
        assert_eq!(cells.len(), self.header.len(), "a row has a text for each column");
        self.rows.push(cells);
    }

    /// The table as lines, the header in bold.
    pub fn render(&self) -> String {
        let width = |column: usize| {
            let cells = self.rows.iter().map(|row| chars(&row[column]));
            cells.chain([chars(&self.header[column].0)]).max().unwrap_or(0)
        };
        let widths: Vec<usize> = (0..self.header.len()).map(width).collect();
        let line = |cells: &mut dyn Iterator<Item = &String>| {
            let mut line = String::new();
            for ((cell, width), (_, align)) in cells.zip(&widths).zip(&self.header) {
                let padding = " ".repeat(width - chars(cell));
                line += "  ";
                line += &match align {
                    Align::Left => format!("{cell}{padding}"),
                    Align::Right => format!("{padding}{cell}"),
                };
            }
            line.truncate(line.trim_end().len());
            line
        };
        let mut out =
            format!("{HEADING}{}{HEADING:#}\n", line(&mut self.header.iter().map(|(name, _)| name)));
        for row in &self.rows {
            out += &line(&mut row.iter());
            out.push('\n');
        }
        out
    }
}

fn chars(text: &str) -> usize {
    text.chars().count()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_as_wide_as_their_widest_text() {
        let mut table = Table::new([("a", Align::Right), ("name", Align::Left), ("n", Align::Left)]);
        table.row(["10".into(), "x".into(), String::new()]);
        table.row(["9".into(), "größer".into(), "1".into()]);
        let plain = anstream::adapter::strip_str(&table.render()).to_string();
        assert_eq!(plain, "   a  name    n\n  10  x\n   9  größer  1\n");
    }
}
