use super::*;

fn metadata() -> Metadata {
    let mut m = Metadata::new();
    m.set("name", "esker");
    m.set("u8", 7u8);
    m.set("i64", -1i64);
    m.set("big", u64::MAX);
    m.set("eps", 1e-6f32);
    m.set("wide", 1e300f64);
    m.set("int_float", (1i32 << 24) + 1);
    m.set("flag", true);
    m.set("raw", Value::RawString(vec![0xff]));
    m.set("ints", vec![1i32, 2, -3]);
    m.set("floats", vec![0.5f32, 2.0]);
    m.set("flags", vec![true, false]);
    m.set("strings", vec!["a".to_owned(), "b".to_owned()]);
    m.set("raws", Value::Array(Array::RawStrings([&b"ok"[..], b"\xff"].into_iter().collect())));
    m
}

fn message<T: std::fmt::Debug>(result: Result<T, MetadataError>) -> String {
    result.unwrap_err().to_string()
}

#[test]
fn integers_of_any_width_convert_where_the_value_fits() {
    let m = metadata();
    assert_eq!(m.u32("u8"), Ok(7));
    assert_eq!(m.u64("big"), Ok(u64::MAX));
    assert_eq!(m.i32("i64"), Ok(-1));
    assert_eq!(m.i64("u8"), Ok(7));
    assert_eq!(m.f32("u8"), Ok(7.0));
    assert_eq!(m.i32_array("ints"), Ok(vec![1, 2, -3]));
    assert_eq!(message(m.u32("i64")), "key `i64` is -1, expected an integer of 0 to 2^32-1");
    assert_eq!(
        message(m.u32("big")),
        "key `big` is 18446744073709551615, expected an integer of 0 to 2^32-1"
    );
    assert_eq!(
        message(m.u32_array("ints")),
        "key `ints` element 2 is -3, expected an array of integers of 0 to 2^32-1"
    );
}

#[test]
fn floats_do_not_lose_integers_or_overflow() {
    let m = metadata();
    assert_eq!(m.f32("eps"), Ok(1e-6));
    assert_eq!(m.f64("eps"), Ok(f64::from(1e-6f32)));
    assert_eq!(m.f64("wide"), Ok(1e300));
    assert!(message(m.f32("wide")).ends_with("expected a number that f32 holds"));
    assert_eq!(message(m.f32("int_float")), "key `int_float` is 16777217, expected a number that f32 holds");
    assert_eq!(message(m.f64("big")), "key `big` is 18446744073709551615, expected a number that f64 holds");
    assert_eq!(m.f64("int_float"), Ok(16_777_217.0));
    assert_eq!(m.f32_array("floats"), Ok(vec![0.5, 2.0]));
}

#[test]
fn wrong_types_and_missing_keys_are_named() {
    let m = metadata();
    assert_eq!(message(m.u32("none")), "key `none` is missing");
    assert_eq!(m.opt_u32("none"), Ok(None));
    assert_eq!(m.opt_u32("u8"), Ok(Some(7)));
    assert_eq!(message(m.opt_u32("name")), "key `name` is string, expected an integer of 0 to 2^32-1");
    assert_eq!(message(m.bool("u8")), "key `u8` is u8, expected a bool");
    assert_eq!(message(m.str("flag")), "key `flag` is bool, expected a string");
    assert_eq!(message(m.str("raw")), "key `raw` is not UTF-8");
    assert_eq!(message(m.str_array("raws")), "key `raws` element 1 is not UTF-8");
    assert_eq!(message(m.str_array("ints")), "key `ints` is array of 3 i32, expected an array of strings");
    assert_eq!(message(m.bool_array("ints")), "key `ints` is array of 3 i32, expected an array of bools");
    assert_eq!(m.bool("flag"), Ok(true));
    assert_eq!(m.str("name"), Ok("esker"));
    assert_eq!(m.bool_array("flags"), Ok(vec![true, false]));
    assert_eq!(m.str_array("strings").map(|s| s.to_vec()), Ok(vec!["a".to_owned(), "b".to_owned()]));
}

#[test]
fn per_layer_values_are_one_for_all_or_one_each() {
    let m = metadata();
    assert_eq!(m.u32_per_layer("u8", 3), Ok(vec![7, 7, 7]));
    assert_eq!(m.bool_per_layer("flags", 2), Ok(vec![true, false]));
    assert_eq!(message(m.bool_per_layer("flags", 3)), "key `flags` has 2 elements, expected 3");
    assert_eq!(m.opt_f32_per_layer("none", 3), Ok(None));
    assert_eq!(message(m.f32_per_layer("none", 3)), "key `none` is missing");
    assert_eq!(
        message(m.u32_per_layer("name", 3)),
        "key `name` is string, expected an integer of 0 to 2^32-1"
    );
}

#[test]
fn order_survives_change_and_removal() {
    let mut m = metadata();
    m.set("u8", 8u8);
    m.remove("i64");
    let keys: Vec<&str> = m.iter().take(3).map(|(k, _)| k).collect();
    assert_eq!(keys, ["name", "u8", "big"]);
    m.retain(|k, _| k == "flag");
    assert_eq!(m.len(), 1);
    assert!(m.contains("flag") && !m.is_empty());
}
