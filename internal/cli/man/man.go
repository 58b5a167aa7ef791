// Package man prints help texts and the manual page.
package man

import (
	"fmt"
	"io"
	"strings"
	"unicode/utf8"

	"github.com/alecthomas/kong"

	"github.com/farfield-ml/farfield/internal/cli/display"
	"github.com/farfield-ml/farfield/internal/cli/env"
	"github.com/farfield-ml/farfield/internal/cli/flags"
)

// Command is the hidden verb man: the manual page, in troff.
type Command struct{}

// Help are examples.
func (Command) Help() string {
	return "It is made from the same texts as --help." + flags.JoinExamples("farfield man >farfield.1")
}

// Run prints the manual page. It returns an error if the output fails.
func (Command) Run(e *env.Env, ctx *kong.Context) error {
	return writeMan(e.Stdout, ctx.Model)
}

// writeMan writes the manual page of the program.
func writeMan(w io.Writer, app *kong.Application) error {
	var b strings.Builder
	fmt.Fprintf(&b, ".TH FARFIELD 1\n.SH NAME\nfarfield \\- %s\n", EscapeTroff(strings.TrimSuffix(display.LowerFirst(app.Help), ".")))
	fmt.Fprintf(&b, ".SH SYNOPSIS\n.B farfield\nVERB [FLAGS] [ARGUMENTS]\n.SH FLAGS OF EVERY VERB\n")
	manFlags(&b, app.Flags)
	fmt.Fprintf(&b, ".SH VERBS\n")
	for _, verb := range app.Leaves(true) {
		fmt.Fprintf(&b, ".SS %s\n%s\n.PP\n", EscapeTroff(verb.Summary()), EscapeTroff(verb.Help))
		manDetail(&b, verb.Detail)
		for _, arg := range verb.Positional {
			fmt.Fprintf(&b, ".TP\n.I %s\n%s\n", EscapeTroff(arg.Name), EscapeTroff(arg.Help))
		}
		manFlags(&b, verb.Flags)
	}
	fmt.Fprintf(&b, ".SH EXIT STATUS\n%s\n", EscapeTroff(flags.ExitStatuses))
	_, err := io.WriteString(w, b.String())
	return err
}

// manFlags writes a paragraph for each flag.
func manFlags(b *strings.Builder, flags []*kong.Flag) {
	for _, f := range flags {
		if f.Hidden {
			continue
		}
		fmt.Fprintf(b, ".TP\n.B %s\n%s\n", EscapeTroff(f.String()), EscapeTroff(f.Help))
	}
}

// manDetail writes paragraphs, and commands as they are.
func manDetail(b *strings.Builder, text string) {
	for line := range strings.Lines(text) {
		line = strings.TrimSuffix(line, "\n")
		switch command, ok := strings.CutPrefix(line, "    "); {
		case ok:
			fmt.Fprintf(b, ".br\n.RS\n.nf\n%s\n.fi\n.RE\n", EscapeTroff(command))
		case line == "":
			b.WriteString(".PP\n")
		default:
			b.WriteString(EscapeTroff(line) + "\n")
		}
	}
}

// EscapeTroff escapes characters in text that troff would read as requests or marks.
func EscapeTroff(text string) string {
	text = strings.NewReplacer(`\`, `\e`, "-", `\-`).Replace(text)
	var ascii strings.Builder
	for _, r := range text {
		if r < utf8.RuneSelf {
			ascii.WriteRune(r)
		} else {
			fmt.Fprintf(&ascii, `\[u%04X]`, r)
		}
	}
	lines := strings.Split(ascii.String(), "\n")
	for i, line := range lines {
		if strings.HasPrefix(line, ".") || strings.HasPrefix(line, "'") {
			lines[i] = `\&` + line
		}
	}
	return strings.Join(lines, "\n")
}
