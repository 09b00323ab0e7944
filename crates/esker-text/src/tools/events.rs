//! Collecting events; neighbours that belong together are joined.

use super::ToolEvent;

/// Events that wait to be handed out, and the numbering of calls.
#[derive(Clone, Debug, Default)]
pub(super) struct Events {
    out: Vec<ToolEvent>,
    started: usize,
    activity: usize,
}

impl Events {
    pub(super) fn take(&mut self) -> Vec<ToolEvent> {
        std::mem::take(&mut self.out)
    }

    /// Changes whenever something of a call is given out.
    pub(super) fn activity(&self) -> usize {
        self.activity
    }

    pub(super) fn text(&mut self, text: &str) {
        if text.is_empty() {
            return;
        }
        match self.out.last_mut() {
            Some(ToolEvent::Text(last)) => last.push_str(text),
            _ => self.out.push(ToolEvent::Text(text.to_owned())),
        }
    }

    /// A call begins; the ones before it have ended.
    pub(super) fn start(&mut self, id: Option<String>, name: String) {
        self.out.push(ToolEvent::CallStart { index: self.started, id, name });
        self.started += 1;
        self.activity += 1;
    }

    /// More arguments of the call that began last.
    pub(super) fn arguments(&mut self, text: &str) {
        if text.is_empty() {
            return;
        }
        self.activity += 1;
        match self.out.last_mut() {
            Some(ToolEvent::Arguments { delta, .. }) => delta.push_str(text),
            _ => self.out.push(ToolEvent::Arguments { index: self.started - 1, delta: text.to_owned() }),
        }
    }

    pub(super) fn end(&mut self, complete: bool) {
        self.activity += 1;
        self.out.push(ToolEvent::CallEnd { index: self.started - 1, complete });
    }
}
