package results

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/farfield-ml/farfield/internal/lab/reproduce"
)

// repository makes one in a folder of its own, which becomes the working folder, and
// returns what commits a file to it.
func repository(t *testing.T) (commit func(path, text string) reproduce.Build) {
	t.Helper()
	if _, err := exec.LookPath("git"); err != nil {
		t.Skip(err)
	}
	t.Chdir(t.TempDir())
	for _, name := range []string{"GIT_AUTHOR_NAME", "GIT_AUTHOR_EMAIL", "GIT_COMMITTER_NAME", "GIT_COMMITTER_EMAIL"} {
		t.Setenv(name, "tester")
	}
	t.Setenv("GIT_CONFIG_GLOBAL", os.DevNull)
	if _, err := git(t.Context(), "init", "-q"); err != nil {
		t.Fatal(err)
	}
	return func(path, text string) reproduce.Build {
		t.Helper()
		if err := os.MkdirAll(filepath.Dir(path), 0o777); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o666); err != nil {
			t.Fatal(err)
		}
		for _, args := range [][]string{{"add", "-A"}, {"commit", "-q", "-m", path}} {
			if _, err := git(t.Context(), args...); err != nil {
				t.Fatal(err)
			}
		}
		b, err := checkedOut(t.Context())
		if err != nil || b.Modified || b.Revision == "" || b.Time == "" {
			t.Fatalf("build is %+v, %v", b, err)
		}
		return b
	}
}

// rowOf returns a row and what says why results of it are stale.
func rowOf(t *testing.T, name string) (*reproduce.Row, func(reproduce.Build) string) {
	t.Helper()
	r, err := reproduce.Lookup(name)
	if err != nil {
		t.Fatal(err)
	}
	return r, func(b reproduce.Build) string {
		a := age{ctx: t.Context(), row: r, bits: true, reasons: map[reproduce.Build]string{}}
		return a.stale(b)
	}
}

// TestStale follows one result through commits that change its code, other
// code, and tests.
func TestStale(t *testing.T) {
	commit := repository(t)
	r, stale := rowOf(t, "fast-kernel")
	for _, folder := range r.Code {
		commit(folder+"/code.go", "package code\n")
	}
	made := commit(r.File(), "package reproduce\n")
	for _, path := range []string{"cmd/farfield/main.go", "attention/a_test.go", "attention/testdata/x", "mechanism/README.md"} {
		if commit(path, path); stale(made) != "" {
			t.Errorf("%s makes it stale: %s", path, stale(made))
		}
	}
	commit("attention/code.go", "// Package code is told of.\npackage code // said otherwise\n")
	commit("attention/doc.go", "// Package code is told of elsewhere.\npackage code\n")
	if why := stale(made); why != "" {
		t.Errorf("comments make it stale: %s", why)
	}
	commit("attention/code.go", "package code\n\n//go:noinline\nfunc f() {}\n")
	if why := stale(made); !strings.Contains(why, "attention/code.go") || !strings.Contains(why, made.Revision[:9]) {
		t.Errorf("after a change of its code: %q", why)
	}
	commit(r.File(), "package reproduce\n\nvar changed int\n")
	if why := stale(made); !strings.Contains(why, "and one more file") {
		t.Errorf("after two changes: %q", why)
	}
	for _, b := range []reproduce.Build{{}, {Revision: made.Revision, Modified: true}, {Revision: strings.Repeat("0", 40)}} {
		if stale(b) == "" {
			t.Errorf("%+v is not stale", b)
		}
	}
	if err := os.WriteFile("attention/code.go", []byte("package code // not committed\n"), 0o666); err != nil {
		t.Fatal(err)
	}
	if b, err := checkedOut(t.Context()); err != nil || !b.Modified {
		t.Errorf("build of a changed tree is %+v, %v", b, err)
	}
}

// TestMoveOfReproductionsMakesNothingStale moves the files of a row from the former folder.
func TestMoveOfReproductionsMakesNothingStale(t *testing.T) {
	commit := repository(t)
	r, stale := rowOf(t, "linear-copy")
	for _, folder := range r.Code {
		commit(folder+"/code.go", "package code\n")
	}
	const own = "package reproduce\n\nvar code = %q\n"
	commit(former(reproduce.BitsFile), "linear-copy copy-linear avx512=01\n")
	made := commit(former(r.File()), fmt.Sprintf(own, formerFolder+"pixels.go"))
	for _, path := range []string{reproduce.BitsFile, r.File()} {
		if err := os.MkdirAll(filepath.Dir(path), 0o777); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(former(path), path); err != nil {
			t.Fatal(err)
		}
	}
	commit(r.File(), fmt.Sprintf(own, folder+"pixels.go"))
	commit("attention/code.go", "package code\n\nconst fast = 1\n")
	if why := stale(made); why != "" {
		t.Errorf("the move makes it stale: %s", why)
	}
	commit(r.File(), "package reproduce\n\nvar code = 1\n")
	if why := stale(made); !strings.HasSuffix(why, "since which "+r.File()+" changed") {
		t.Errorf("after a change of the moved file: %q", why)
	}
}

// TestStaleByBits follows scores through commits that change the code of arithmetic, and
// what is known of its bits.
func TestStaleByBits(t *testing.T) {
	commit := repository(t)
	r, stale := rowOf(t, "linear-copy")
	_, staleByCode := rowOf(t, "bytelm")
	for _, folder := range r.Code {
		commit(folder+"/code.go", "package code\n")
	}
	const line, other = "linear-copy copy-linear avx512=01 avx2=02\n", "mqar mqar-k8-linear avx512=03\n"
	early := commit(r.File(), "package reproduce\n")
	made := commit("attention/code.go", "package code // slow\n\nconst slow = 1\n")
	changes := 0
	change := func() reproduce.Build { // of attention
		changes++
		return commit("attention/code.go", fmt.Sprintf("package code\n\nconst fast = %d\n", changes))
	}
	all := []*reproduce.Build{&early, &made}
	hold := func(when string, want ...*reproduce.Build) {
		t.Helper()
		for i, b := range all {
			if why := stale(*b); (why != "") != slices.Contains(want, b) {
				t.Errorf("%s: build %d is stale for %q", when, i, why)
			}
		}
	}
	hold("without bits", &early)
	commit(reproduce.BitsFile, line+other)
	hold("with bits", &early)
	later := change()
	all = append(all, &later)
	hold("after a change that keeps bits", &early)
	if staleByCode(made) == "" {
		t.Error("a row of speeds goes by bits")
	}
	if a := (age{ctx: t.Context(), row: r, reasons: map[reproduce.Build]string{}}); a.stale(made) == "" {
		t.Error("a row of another budget goes by the bits of this one")
	}
	commit(reproduce.BitsFile, "mqar mqar-k8-linear avx512=04\n"+line+"linear-copy copy-softmax avx512=05\n")
	change()
	hold("with other bits of another row and new trainings", &early)
	for _, bits := range []string{
		strings.Replace(line, "02", "06", 1), // with one instruction set
		strings.Replace(line, " avx2=02", "", 1),
		other,
		"",
	} {
		change()
		commit(reproduce.BitsFile, bits)
		hold("with the bits "+bits, &early, &made, &later)
		if why := stale(made); !strings.Contains(why, made.Revision[:9]) || !strings.Contains(why, "attention/code.go") {
			t.Errorf("with the bits %q: %q", bits, why)
		}
	}
	if err := os.WriteFile(reproduce.BitsFile, []byte(line), 0o666); err != nil {
		t.Fatal(err)
	}
	hold("with the bits as they were, not committed", &early)
	commit(reproduce.BitsFile, line)
	hold("with the bits as they were", &early)

	// Digests that were written anew, of the same code, know what was made before.
	before := change()
	commit(reproduce.BitsFile, strings.ReplaceAll(line, "0", "1"))
	all = append(all, &before)
	hold("with digests of something else", &early, &made, &later)
	change()
	hold("and a change that keeps them", &early, &made, &later)

	commit("task/code.go", "package code\n\nconst another = 1\n")
	hold("after a change of its own code", all...)
	if why := stale(before); !strings.HasSuffix(why, "since which task/code.go changed") {
		t.Errorf("after a change of its own code: %q", why)
	}
}

func TestCode(t *testing.T) {
	const src = "package p\n\nfunc f() int {\n\treturn 1\n}\n"
	for _, c := range []struct {
		other string
		same  bool
	}{
		{"// Package p is.\npackage p\n\n// f is 1.\nfunc f() int {\n\n\treturn 1 // one\n}\n", true},
		{"package p\n\nfunc f() int { return 1 }\n", false}, // its lines end elsewhere
		{"package p\n\nfunc f() int {\n\treturn 2\n}\n", false},
		{"package p\n\n//go:noinline\nfunc f() int {\n\treturn 1\n}\n", false},
		{"//go:build linux\n\npackage p\n\nfunc f() int {\n\treturn 1\n}\n", false},
		{"", false},
	} {
		if same := slices.Equal(code([]byte(src)), code([]byte(c.other))); same != c.same {
			t.Errorf("%q: the same is %v", c.other, same)
		}
	}
	if list := code([]byte("// Package p is.\npackage p\n")); len(list) != 0 {
		t.Errorf("a document has the code %q", list)
	}
}

func TestBadFlags(t *testing.T) {
	for _, args := range []string{"-budget day", "more", "-nothing", "-rows fast-kernel,nothing"} {
		if err := Run(t.Context(), strings.Fields(args)); err == nil {
			t.Errorf("%s: no error", args)
		}
	}
}

// TestPagesOfRowsAreWhole reads the committed pages, writes them and their table anew, and
// compares both.
func TestPagesOfRowsAreWhole(t *testing.T) {
	root := filepath.Join("..", "..", "..")
	folder := filepath.Join(root, "docs", "results")
	pages, err := sections(folder)
	if err != nil {
		t.Fatal(err)
	}
	table, err := written.ReadFile(filepath.Join(root, "RESULTS.md"))
	if err != nil {
		t.Fatal(err)
	}
	out := t.TempDir()
	for _, r := range reproduce.Rows() {
		s, found := pages[r.Name]
		if !found || !s.isComplete || len(s.builds) == 0 {
			t.Errorf("%s: found %v, whole %v, made by %v", r.Name, found, s.isComplete, s.builds)
		}
		v, judged := verdicts[r.Name]
		if !judged || v.reason == "" || v.headline(s.text) == "" {
			t.Errorf("%s: the verdict is %+v, its page has no finding that begins so", r.Name, v)
		}
		if err := writePage(out, r.Name, s.text); err != nil {
			t.Fatal(err)
		}
		old, err := os.ReadFile(filepath.Join(folder, r.Name+".md"))
		if err != nil {
			t.Fatal(err)
		}
		fresh, err := os.ReadFile(filepath.Join(out, r.Name+".md"))
		if err != nil {
			t.Fatal(err)
		}
		if string(fresh) != outdated.ReplaceAllString(string(old), "") {
			t.Errorf("%s: the page is not what is written from it: farfield-lab results -saved", r.Name)
		}
		path := filepath.Join(folder, r.Name+".md")
		if want := line(r.Name, path, root, s.text, string(fresh) != string(old)); !strings.Contains(string(table), want+"\n") {
			t.Errorf("RESULTS.md lacks the line of %s: farfield-lab results -saved\n%s", r.Name, want)
		}
	}
	if len(verdicts) != len(reproduce.Rows()) {
		t.Errorf("%d verdicts for %d rows", len(verdicts), len(reproduce.Rows()))
	}
}

func TestTitleSaysThatAClaimIsNotReached(t *testing.T) {
	v := verdict{claim: "not reached", reason: "one seed"}
	if got := v.title("row"); got != "# row: claim not reached: one seed" {
		t.Errorf("the title is %q", got)
	}
}

func TestPageHasItsOrigin(t *testing.T) {
	const origin = "`farfield-lab reproduce fast-kernel`, 1s. Machine: one, caches 3. Code: 012345678; not recorded; 123456789 with changes. Made: 2026-11-23."
	const body = "A kernel.\n\n" + origin + " 2 pieces are missing.\n\n- found | it\n"
	s := pageSection("# title\n\n" + body + "\n**Stale**: made by x.\n")
	want := section{text: body, builds: []reproduce.Build{{Revision: "012345678"}, {}, {Revision: "123456789", Modified: true}}}
	if s.text != want.text || s.isComplete || !slices.Equal(s.builds, want.builds) {
		t.Errorf("the page is %+v, want %+v", s, want)
	}
	verdicts["fast-kernel-of-test"] = verdict{"reached", "it is", "found"}
	defer delete(verdicts, "fast-kernel-of-test")
	const cells = `| [fast-kernel-of-test](p/x.md) | found \| it | reached: it is | ` + "`farfield-lab reproduce fast-kernel`" + ` | one | 2026-11-23, stale |`
	if got := line("fast-kernel-of-test", "p/x.md", ".", s.text, true); got != cells {
		t.Errorf("the line is\n%s\nwant\n%s", got, cells)
	}
}
