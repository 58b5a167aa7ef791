// Package coverage runs the short tests of the library and prints which share of the
// statements of each package they reach. A package below the bar is an error. It runs
// in the root of a checkout.
//
//	coverage [-bar PERCENT] [-page FILE] [PACKAGE...]
//
// A package is reached by its own tests and by the tests of the named packages, without
// names by the tests of the whole library. -page writes the table into a page.
package coverage

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/farfield-ml/farfield/internal/page"
)

const module = "github.com/farfield-ml/farfield"

// apart are packages that no program links which uses the library, and one that is
// nothing without a tag of the build.
var apart = []string{"internal/check", "internal/bench", "comm/mpi"}

// libraryPackages reports whether a package, by its place in the module, is counted.
func libraryPackages(name string) bool {
	first, _, _ := strings.Cut(name, "/")
	return !slices.Contains([]string{"cmd", "examples"}, first) && !strings.HasPrefix(name, "internal/lab/") && !slices.Contains(apart, name)
}

// Run measures the coverage that args ask for and prints it. It returns an error if an
// argument is wrong, a test fails, or a package is below the bar.
func Run(ctx context.Context, args []string) error {
	f := flag.NewFlagSet("coverage", flag.ContinueOnError)
	bar := f.Float64("bar", 90, "percent of the statements of each package")
	to := f.String("page", "", "page to write the table into")
	if err := f.Parse(args); err != nil {
		return err
	}
	list := exec.CommandContext(ctx, "go", append([]string{"list"}, listPackages(f.Args())...)...)
	list.Stderr = os.Stderr
	out, err := list.Output()
	if err != nil {
		return fmt.Errorf("go list: %w", err)
	}
	var names []string
	for _, name := range strings.Fields(string(out)) {
		if libraryPackages(inModule(name)) {
			names = append(names, name)
		}
	}
	if len(names) == 0 {
		return errors.New("no package of the library is named")
	}
	dir, err := os.MkdirTemp("", "coverage")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	file := filepath.Join(dir, "profile")
	test := exec.CommandContext(ctx, "go", append([]string{"test", "-short", "-coverpkg", strings.Join(names, ","), "-coverprofile", file}, names...)...)
	var said bytes.Buffer
	test.Stdout, test.Stderr = &said, os.Stderr
	if err := test.Run(); err != nil {
		return fmt.Errorf("go test: %w\n%s", err, &said)
	}
	profile, err := os.Open(file)
	if err != nil {
		return err
	}
	defer profile.Close()
	reached, err := readProfile(profile)
	if err != nil {
		return err
	}
	text, below := writeTable(reached, *bar)
	fmt.Print(text)
	if *to != "" {
		if err := written.WriteFile(*to, []byte(text)); err != nil {
			return err
		}
	}
	if len(below) > 0 {
		return fmt.Errorf("below %v %%: %s", *bar, strings.Join(below, ", "))
	}
	return nil
}

// listPackages returns what the arguments name.
func listPackages(args []string) []string {
	if len(args) == 0 {
		return []string{"./..."}
	}
	return args
}

// inModule returns the place of a package in the module.
func inModule(name string) string {
	return strings.TrimPrefix(strings.TrimPrefix(name, module), "/")
}

// share is how many statements of a package there are, and how many a test reached.
type share struct{ all, reached int }

func (s share) percent() float64 { return 100 * float64(s.reached) / float64(max(s.all, 1)) }

// readProfile returns the shares of packages of a profile, in which each test binary has a
// line for every block:
//
//	PACKAGE/FILE:FROM,TO STATEMENTS COUNT
func readProfile(r io.Reader) (map[string]share, error) {
	type block struct {
		statements int
		reached    bool
	}
	blocks := map[string]block{}
	lines := bufio.NewScanner(r)
	for lines.Scan() {
		fields := strings.Fields(lines.Text())
		if len(fields) == 2 && fields[0] == "mode:" {
			continue
		}
		if len(fields) != 3 {
			return nil, fmt.Errorf("profile: %q", lines.Text())
		}
		statements, err1 := strconv.Atoi(fields[1])
		count, err2 := strconv.ParseInt(fields[2], 10, 64)
		if err := errors.Join(err1, err2); err != nil {
			return nil, fmt.Errorf("profile: %w", err)
		}
		b := blocks[fields[0]]
		blocks[fields[0]] = block{statements, b.reached || count > 0}
	}
	shares := map[string]share{}
	for place, b := range blocks {
		file, _, _ := strings.Cut(place, ":")
		name := inModule(path.Dir(file))
		s := shares[name]
		s.all += b.statements
		if b.reached {
			s.reached += b.statements
		}
		shares[name] = s
	}
	return shares, lines.Err()
}

// written is the part of docs/testing.md.
var written = page.Part{
	Begin: "<!-- coverage: go run ./cmd/farfield-lab coverage -page docs/testing.md -->",
	End:   "<!-- coverage: end -->",
	Title: "## Coverage",
}

// writeTable returns a table of packages in the order of their names, and which are below
// the bar.
func writeTable(shares map[string]share, bar float64) (text string, below []string) {
	var names []string
	for name := range shares {
		names = append(names, name)
	}
	slices.Sort(names)
	var b strings.Builder
	b.WriteString("| package | statements | reached |\n|---|---|---|\n")
	var whole share
	for _, name := range names {
		s := shares[name]
		whole.all, whole.reached = whole.all+s.all, whole.reached+s.reached
		if name == "" {
			name = "farfield"
		}
		if s.percent() < bar {
			below = append(below, fmt.Sprintf("%s (%.1f)", name, s.percent()))
		}
		fmt.Fprintf(&b, "| %s | %d | %.1f %% |\n", name, s.all, s.percent())
	}
	fmt.Fprintf(&b, "| all | %d | %.1f %% |\n", whole.all, whole.percent())
	return b.String(), below
}
