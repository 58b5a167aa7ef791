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
	home     string
	checkout string // a clone, which stands for the repository on the network
	env      []string
	isNew    bool // it has the tools alone
}

// repository is where pages clone farfield from. Git reads the clone of the account instead.
const repository = "https://github.com/farfield-ml/farfield"

// tools are all that a new account has.
var tools = []string{
	"go", "git", "bash",
	// of coreutils
	"basename", "cat", "chmod", "cp", "cut", "date", "dirname", "env", "head", "ln", "ls", "mkdir", "mktemp", "mv",
	"printf", "pwd", "rm", "seq", "sleep", "sort", "tail", "tee", "touch", "tr", "true", "uname", "uniq", "wc",
}

// network is how Go reaches modules, which is the machine's and not the account's.
var network = []string{"GOPROXY", "GOSUMDB", "GONOSUMDB", "GONOPROXY", "GOPRIVATE", "GOINSECURE", "GOTOOLCHAIN"}

// newAccount returns an account below dir with a clone of the checkout at root: a new
// account with nothing but tools, or the caches and tools of this one with its own
// folder of programs.
func newAccount(ctx context.Context, dir, root string, isNew bool) (*account, error) {
	a := &account{home: filepath.Join(dir, "home"), checkout: filepath.Join(dir, "farfield"), isNew: isNew}
	programs, bin := filepath.Join(a.home, "go", "bin"), filepath.Join(dir, "bin")
	for _, folder := range []string{programs, bin} {
		if err := os.MkdirAll(folder, 0o777); err != nil {
			return nil, err
		}
	}
	if _, err := commandOutput(ctx, "git", "clone", "--quiet", root, a.checkout); err != nil {
		return nil, err
	}
	a.env = []string{"GIT_CONFIG_COUNT=1", "GIT_CONFIG_KEY_0=url." + a.checkout + ".insteadOf", "GIT_CONFIG_VALUE_0=" + repository}
	if !isNew {
		// Without paths in compiled code the build cache serves other clones, too.
		a.env = slices.Concat(os.Environ(), a.env, []string{"GOBIN=" + programs, "GOFLAGS=-trimpath", "FARFIELD_DATA=",
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
	a.env = append(a.env, "HOME="+a.home, "LANG=C.UTF-8", "PATH="+programs+string(filepath.ListSeparator)+bin)
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
	return err == nil && !a.isNew
}

// clean returns what was printed, with ~ for the home of the account and without the
// lines of downloads.
func (a *account) clean(text string) string {
	text = strings.ReplaceAll(strings.ToValidUTF8(text, "\uFFFD"), a.home, "~")
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
