package recipes

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
)

// account is where commands run.
type account struct {
	home, checkout string
	env            []string
	isFresh        bool   // it has the tools alone
	commit         string // that is checked out
}

// tools are all that a new account has.
var tools = []string{
	"go", "git", "bash",
	// of coreutils
	"basename", "cat", "chmod", "cp", "cut", "date", "dirname", "env", "head", "ln", "ls", "mkdir", "mktemp", "mv",
	"printf", "pwd", "rm", "seq", "sleep", "sort", "tail", "tee", "touch", "tr", "true", "uname", "uniq", "wc",
}

// network is how Go reaches modules, which is the machine's and not the account's.
var network = []string{"GOPROXY", "GOSUMDB", "GONOSUMDB", "GONOPROXY", "GOPRIVATE", "GOINSECURE", "GOTOOLCHAIN"}

// newAccount clones the checkout at root into an account below dir: a new one, or
// this one's caches and tools with a folder of programs of its own.
func newAccount(ctx context.Context, dir, root string, fresh bool) (*account, error) {
	a := &account{home: filepath.Join(dir, "home"), checkout: filepath.Join(dir, "home", "farfield")}
	programs, bin := filepath.Join(a.home, "go", "bin"), filepath.Join(dir, "bin")
	for _, folder := range []string{programs, bin} {
		if err := os.MkdirAll(folder, 0o777); err != nil {
			return nil, err
		}
	}
	if _, err := commandOutput(ctx, "git", "clone", "--quiet", root, a.checkout); err != nil {
		return nil, err
	}
	commit, err := commandOutput(ctx, "git", "-C", a.checkout, "rev-parse", "--short", "HEAD")
	if err != nil {
		return nil, err
	}
	a.commit = commit
	if !fresh {
		// Without paths in compiled code the build cache serves other clones, too.
		a.env = slices.Concat(os.Environ(), []string{"GOBIN=" + programs, "GOFLAGS=-trimpath", "FARFIELD_DATA=",
			"PATH=" + programs + string(filepath.ListSeparator) + os.Getenv("PATH")})
		return a, nil
	}
	for _, name := range tools {
		path, err := exec.LookPath(name)
		if err != nil {
			return nil, err
		}
		if err := os.Symlink(path, filepath.Join(bin, name)); err != nil {
			return nil, err
		}
	}
	a.isFresh = true
	a.env = []string{"HOME=" + a.home, "LANG=C.UTF-8", "PATH=" + programs + string(filepath.ListSeparator) + bin}
	for _, name := range network {
		value, err := commandOutput(ctx, "go", "env", name)
		if err != nil {
			return nil, err
		}
		if value != "" {
			a.env = append(a.env, name+"="+value)
		}
	}
	return a, nil
}

// has reports whether the account has a program.
func (a *account) has(program string) bool {
	_, err := exec.LookPath(program)
	return err == nil && !a.isFresh
}

// clean is what was printed, without the folders of this account and what was
// downloaded.
func (a *account) clean(text string) string {
	text = strings.NewReplacer(a.checkout, "~/farfield", a.home, "~").Replace(strings.ToValidUTF8(text, "\uFFFD"))
	var kept strings.Builder
	for line := range strings.Lines(text) {
		if !strings.HasPrefix(line, "go: downloading ") {
			kept.WriteString(line)
		}
	}
	return kept.String()
}

// commandOutput returns what a command prints, without the last new line.
func commandOutput(ctx context.Context, name string, args ...string) (string, error) {
	text, err := exec.CommandContext(ctx, name, args...).CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("%s %s: %w: %s", name, strings.Join(args, " "), err, text)
	}
	return strings.TrimSpace(string(text)), nil
}
