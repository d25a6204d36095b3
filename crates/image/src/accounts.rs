//! Users and groups in `/etc/passwd` and `/etc/group`. A static program has no other source.

/// The number of the user `name`, which may itself be a number.
pub fn user(name: &str) -> Option<u32> {
    number(name).or_else(|| field("/etc/passwd", name, 2))
}

/// The number of the group `name`, which may itself be a number.
pub fn group(name: &str) -> Option<u32> {
    number(name).or_else(|| field("/etc/group", name, 2))
}

/// Parses an owner. The largest number is not one: chown(2) takes it as "no change".
fn number(text: &str) -> Option<u32> {
    text.parse().ok().filter(|number| *number != u32::MAX)
}

/// The login group of a user that is given by name.
pub fn login_group(name: &str) -> Option<u32> {
    field("/etc/passwd", name, 3)
}

/// The name of the user `number`.
pub fn user_name(number: u32) -> Option<String> {
    name("/etc/passwd", number)
}

/// The name of the group `number`.
pub fn group_name(number: u32) -> Option<String> {
    name("/etc/group", number)
}

/// The first field of the line of `table` whose third field is `number`.
fn name(table: &str, number: u32) -> Option<String> {
    let lines = std::fs::read_to_string(table).ok()?;
    lines.lines().find_map(|line| {
        let mut fields = line.split(':');
        let name = fields.next()?;
        (fields.nth(1)?.parse() == Ok(number)).then(|| name.to_owned())
    })
}

/// The number in `column` of the line of `table` that begins with `name`.
fn field(table: &str, name: &str, column: usize) -> Option<u32> {
    let lines = std::fs::read_to_string(table).ok()?;
    lines.lines().find_map(|line| {
        let mut fields = line.split(':');
        let found = fields.next() == Some(name);
        found.then(|| fields.nth(column - 1)?.parse().ok())?
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_numbers() {
        assert_eq!((user("root"), group("root"), login_group("root")), (Some(0), Some(0), Some(0)));
        assert_eq!((user_name(0), group_name(0)), (Some("root".into()), Some("root".into())));
        assert_eq!(user_name(4_294_967_294), None);
        assert_eq!((user("4294967294"), group("7")), (Some(4_294_967_294), Some(7)));
        assert_eq!((user("4294967295"), group("4294967295")), (None, None));
        assert_eq!((user("no such name"), login_group("7")), (None, None));
    }
}
