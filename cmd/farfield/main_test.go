package main

import (
	"bytes"
	"context"
	"slices"
	"strings"
	"testing"

	"github.com/farfield-ml/farfield/internal/cli/env"
)

// command runs the program as from a shell, without a terminal.
func command(t *testing.T, args ...string) (status int, stdout, stderr string) {
	t.Helper()
	var out, errs bytes.Buffer
	status = farfield().RunVerb(args, &env.Env{Context: context.Background(), Stdin: strings.NewReader(""), Stdout: &out, Stderr: &errs})
	if status == 0 && slices.Contains(args, "--json") {
		checkKeys(t, strings.Join(args, " "), out.String())
	}
	return status, out.String(), errs.String()
}

// works runs a command that must succeed, and returns what it prints.
func works(t *testing.T, args ...string) string {
	t.Helper()
	status, out, errs := command(t, args...)
	if status != 0 {
		t.Fatalf("farfield %s: status %d: %s", strings.Join(args, " "), status, errs)
	}
	return out
}

// refuses runs a command that must leave with status 2 and one line that holds
// want, and prints nothing else.
func refuses(t *testing.T, want string, args ...string) {
	t.Helper()
	status, out, errs := command(t, args...)
	if status != env.StatusInput || out != "" || strings.Count(errs, "\n") != 1 || !strings.HasPrefix(errs, "farfield: ") || !strings.Contains(errs, want) {
		t.Errorf("farfield %s: status %d\nstdout %q\nstderr %q\nwant %q", strings.Join(args, " "), status, out, errs, want)
	}
}

func TestBadCommands(t *testing.T) {
	for _, c := range []struct{ want, args string }{
		{"there is no verb nothing (see farfield --help)", "nothing"},
		{"unknown flag --wrong (see farfield plan --help)", "plan --wrong"},
		{"--threads: -1 is negative", "--threads=-1 plan"},
		{"missing flags: --mechanism=NAME or --model=DIR (see farfield attend --help)", "attend a.npz b.npz"},
		{"needs a file of arrays to read and one to write", "attend --mechanism fastmax"},
		{"--form must be one of", "attend --mechanism fastmax --form best a.npz b.npz"},
		{`mechanism "fastmx": unknown; nearest: fastmax`, "attend --mechanism fastmx a.npz b.npz"},
	} {
		refuses(t, c.want, strings.Fields(c.args)...)
	}
}

// An unset variable of a shell is no flag that is left out.
func TestEmptyPathsAreRefused(t *testing.T) {
	for want, args := range map[string][]string{
		"--keys: is empty":  {"serve", "--model", "none", "--keys", ""},
		"--data: is empty":  {"train", "--data="},
		"--out: is empty":   {"generate", "--model", "none", "-o", ""},
		"--model: is empty": {"maps", "--model", "none", "--model", ""},
	} {
		refuses(t, want, args...)
	}
	t.Setenv("FARFIELD_DATA", "")
	works(t, "data", "list")
}

func TestHelp(t *testing.T) {
	for _, c := range []struct {
		args string
		want []string
	}{
		{"", []string{"attend", "plan", "inspect", "--threads"}},
		{"data --help", []string{"list", "fetch", "generate", "verify"}},
		{"attend --help", []string{"keymask", "--allow-nonfinite", "taylorshift", "softmax"}},
		{"attend --mechanism taylorshift --help", []string{"parameter tau (H)", "d_tau", "--set tau=VALUE", "--order P"}},
		{"plan --mechanism fastmax --help", []string{"--set bounded=VALUE", "--width"}},
	} {
		out := works(t, strings.Fields(c.args)...)
		for _, want := range c.want {
			if !strings.Contains(out, want) {
				t.Errorf("farfield %s does not print %q", c.args, want)
			}
		}
	}
}

func TestInterrupt(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	var out, errs bytes.Buffer
	e := &env.Env{Context: ctx, Stdin: strings.NewReader(""), Stdout: &out, Stderr: &errs}
	if err := e.RunInterruptibly(func() error { select {} }); err != context.Canceled {
		t.Errorf("what never ends gives %v", err)
	}
	if status := farfield().ReportError(e, ctx.Err()); status != env.StatusInterrupted || errs.String() != "farfield: interrupted\n" {
		t.Errorf("status %d, %q", status, errs.String())
	}
}
