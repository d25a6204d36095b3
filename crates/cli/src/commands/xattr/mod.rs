//! `getxattr` and `setxattr`.

mod value;

use self::value::{Encoding, decode};
use super::each::{each, go_on};
use crate::failure::{Failure, Result};
use crate::image::{at, cred};
use crate::location::Inside;
use crate::scope::Scope;
use crate::show;
use nextent::Error;
use nextent::inodes::{Inodes, XattrMode};
use serde_json::{Value, json};
use std::ffi::{OsStr, OsString};
use std::io::{self, BufWriter, Write};
use std::os::unix::ffi::OsStrExt;

/// Arguments of `getxattr`.
#[derive(Debug, clap::Args)]
#[command(disable_help_flag = true)]
pub(crate) struct Get {
    /// Show the value of this attribute
    #[arg(short, long, value_name = "NAME", conflicts_with = "dump")]
    name: Option<OsString>,
    #[command(flatten)]
    form: Form,
    /// Print help
    #[arg(long, action = clap::ArgAction::Help)]
    help: Option<bool>,
    /// A path inside an image
    #[arg(required = true, value_name = "IMAGE:/PATH")]
    paths: Vec<OsString>,
}

/// What is shown, and how.
#[derive(Debug, clap::Args)]
pub(crate) struct Form {
    /// Show the values of all attributes
    #[arg(short, long)]
    dump: bool,
    /// Form of values [default: text if it is text, else base64]
    #[arg(short, long, value_name = "FORM")]
    encoding: Option<Encoding>,
    /// Print values as they are, and nothing else
    #[arg(long, conflicts_with_all = ["encoding", "json"])]
    only_values: bool,
    /// Show the attributes of a symbolic link itself
    #[arg(short = 'h', long)]
    no_dereference: bool,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

impl Get {
    /// Shows one attribute of `path`, or all.
    pub(crate) fn of(path: OsString, name: Option<OsString>, form: Form) -> Self {
        Self { name, form, help: None, paths: vec![path] }
    }
}

/// Arguments of `setxattr`.
#[derive(Debug, clap::Args)]
#[command(disable_help_flag = true)]
#[command(override_usage = "nextent setxattr [-h] IMAGE:/PATH NAME VALUE\n       \
                            nextent setxattr [-h] -x NAME IMAGE:/PATH...")]
pub(crate) struct Set {
    /// Remove this attribute from each path
    #[arg(short = 'x', long, value_name = "NAME")]
    remove: Option<OsString>,
    /// Change a symbolic link itself
    #[arg(short = 'h', long)]
    no_dereference: bool,
    /// Print help
    #[arg(long, action = clap::ArgAction::Help)]
    help: Option<bool>,
    /// A path inside an image, then name and value; with -x only paths
    #[arg(required = true, value_name = "IMAGE:/PATH NAME VALUE", allow_hyphen_values = true)]
    words: Vec<OsString>,
}

/// `nextent getxattr`.
pub(crate) fn get(args: &Get, scope: Scope<'_>) -> Result<()> {
    let mut out = BufWriter::new(io::stdout().lock());
    let mut all = Vec::new();
    let done = go_on(&args.paths, |path| {
        let inside = scope.inside(path)?;
        scope.read(&inside, |volume| {
            let found = attributes(args, volume, &inside)?;
            if args.form.json {
                all.push(describe(args, &inside, &found));
                return Ok(());
            }
            print(args, &mut out, &inside, &found)
        })
    });
    if args.form.json {
        writeln!(out, "{:#}", Value::Array(all))?;
    }
    let flushed = out.flush();
    done?;
    Ok(flushed?)
}

/// The attributes to show: names, and values if these are asked for.
type Attributes = Vec<(Vec<u8>, Option<Vec<u8>>)>;

fn attributes(args: &Get, volume: &Inodes, inside: &Inside) -> Result<Attributes> {
    let follow = !args.form.no_dereference;
    let attr = at("getxattr", inside, volume.resolve(&cred(), &inside.path, follow))?;
    let value = |name: &[u8]| match volume.getxattr(&cred(), attr.ino, name) {
        Err(Error::NoData) => {
            let name = show::name(name);
            Err(Failure::new(format!("getxattr {inside}: {name}: no such attribute")))
        }
        value => at("getxattr", inside, value),
    };
    if let Some(name) = &args.name {
        let name = name.as_bytes();
        return Ok(vec![(name.to_vec(), Some(value(name)?))]);
    }
    let mut names = at("getxattr", inside, volume.listxattr(&cred(), attr.ino))?;
    names.sort_unstable();
    let with_values = args.form.dump || args.form.only_values;
    let with_value = |name: Vec<u8>| {
        let value = with_values.then(|| value(&name)).transpose()?;
        Ok((name, value))
    };
    names.into_iter().map(with_value).collect()
}

fn print(args: &Get, out: &mut impl Write, inside: &Inside, found: &Attributes) -> Result<()> {
    if args.form.only_values {
        return Ok(found.iter().flat_map(|(_, value)| value).try_for_each(|v| out.write_all(v))?);
    }
    if found.is_empty() {
        return Ok(());
    }
    writeln!(out, "# file: {inside}")?;
    for (name, value) in found {
        write!(out, "{}", show::name(name))?;
        if let Some(value) = value {
            let form = args.form.encoding.unwrap_or_else(|| Encoding::fitting(value));
            write!(out, "={}", form.encode(value))?;
        }
        writeln!(out)?;
    }
    Ok(writeln!(out)?)
}

fn describe(args: &Get, inside: &Inside, found: &Attributes) -> Value {
    let one = |(name, value): &(Vec<u8>, Option<Vec<u8>>)| {
        let mut one = json!({"name": show::name(name)});
        if let Some(value) = value {
            // Text in JSON has no form for bytes that are no text.
            let form = args
                .form
                .encoding
                .filter(|form| *form != Encoding::Text || std::str::from_utf8(value).is_ok());
            let form = form.unwrap_or_else(|| Encoding::fitting(value));
            one["encoding"] = form.name().into();
            one["value"] = form.bare(value).into();
        }
        one
    };
    let list: Vec<Value> = found.iter().map(one).collect();
    json!({"path": inside.to_string(), "xattrs": list})
}

/// `nextent setxattr`.
pub(crate) fn set(args: &Set, scope: Scope<'_>) -> Result<()> {
    let change = |path: &[OsString], name: &OsStr, value: Option<Vec<u8>>| {
        each(scope, path, |volume, inside| {
            let follow = !args.no_dereference;
            let attr = at("setxattr", inside, volume.resolve(&cred(), &inside.path, follow))?;
            let name = name.as_bytes();
            let done = match &value {
                Some(value) => volume.setxattr(&cred(), attr.ino, name, value, XattrMode::Either),
                None => volume.removexattr(&cred(), attr.ino, name),
            };
            done.map_err(|error| refused(inside, name, error))
        })
    };
    match (&args.remove, &args.words[..]) {
        (Some(name), paths) => change(paths, name, None),
        (None, [path, name, value]) => {
            let bytes = decode(value.as_bytes()).ok_or_else(|| {
                let shown = show::name(value.as_bytes());
                Failure::usage(format!(
                    "setxattr: `{shown}` is no value: text, 0x and hexadecimal digits, 0s and \
                     base64, or text with escapes in double quotes"
                ))
            })?;
            change(std::slice::from_ref(path), name, Some(bytes))
        }
        _ => Err(Failure::usage("setxattr: give a path, a name and a value; -x NAME removes")),
    }
}

/// The failure of a change of attribute `name`.
fn refused(inside: &Inside, name: &[u8], error: Error) -> Failure {
    let shown = show::name(name);
    let why = match error {
        Error::NoData => "no such attribute",
        Error::NotSupported => {
            "no such namespace: user., trusted., security., system.posix_acl_access, \
             system.posix_acl_default"
        }
        Error::Perm if name.starts_with(b"user.") => {
            "only files and directories that may be changed have attributes of `user.`"
        }
        error => {
            return match at::<()>(&format!("setxattr {shown}"), inside, Err(error)) {
                Err(failure) => failure,
                Ok(()) => Failure::reported(1),
            };
        }
    };
    Failure::new(format!("setxattr {inside}: {shown}: {why}"))
}
