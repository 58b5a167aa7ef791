package farfield_test

import (
	"go/build"
	"go/doc"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

const module = "github.com/farfield-ml/farfield"

// layers lists every package in the one direction of imports: a package may
// import only packages of earlier lines. The root package and the commands
// come last.
var layers = []string{
	"rng",
	"internal/suite",
	"internal/cpu",
	"internal/machine",
	"internal/par",
	"internal/arena",
	"internal/kernel",
	"internal/fourier",
	"internal/logistic",
	"internal/kmeans",
	"internal/papercost",
	"internal/conformance",
	"tensor",
	"internal/scratch",
	"internal/losses",
	"internal/fault",
	"internal/framed",
	"internal/snapshot",
	"internal/oracle",
	"internal/check",
	"internal/lock",
	"internal/infile",
	"internal/strict",
	"internal/atomicfile",
	"internal/page",
	"internal/settings",
	"internal/tensorboard",
	"comm",
	"comm/mpi",
	"internal/array",
	"internal/safetensors",
	"safetensors",
	"internal/dataset",
	"internal/fetch",
	"param",
	"internal/attention/costmodel",
	"internal/attention/features",
	"internal/attention/rowscale",
	"internal/attention/rowstats",
	"internal/attention/band",
	"attention",
	"internal/states",
	"internal/attention/headtask",
	"internal/attention/engine",
	"internal/attention/hybrid",
	"internal/attention/calltest",
	"internal/attention/headwise",
	"attention/factorised",
	"attention/headwise",
	"internal/sequence",
	"internal/streamfile",
	"mechanism/internal/entry",
	"mechanism/internal/zoo",
	"mechanism",
	"stream",
	"nn",
	"optim",
	"tokenizer",
	"internal/token",
	"train/data",
	"internal/task",
	"model",
	"internal/exchanged",
	"internal/checkpoint",
	"internal/exchange",
	"internal/published",
	"pretrained",
	"train",
	"internal/generate",
	"internal/score",
	"internal/inference",
	"internal/sessions",
	"internal/chat",
	"internal/grammar",
	"internal/serve",
	"internal/bench",
	"internal/report",
	"client",
	"internal/serve/web",
	"",
	"internal/cli/display",
	"internal/cli/env",
	"internal/cli/flags",
	"internal/cli/progress",
	"internal/cli/texts",
	"internal/cli/records",
	"internal/cli/problem",
	"internal/cli/runs",
	"internal/cli/vectors",
	"internal/cli/version",
	"internal/cli/program",
	"internal/cli/help",
	"internal/cli/attend",
	"internal/cli/bench",
	"internal/cli/plan",
	"internal/cli/data",
	"internal/cli/models",
	"internal/cli/demo",
	"internal/cli/embed",
	"internal/cli/eval",
	"internal/cli/exchange",
	"internal/cli/export",
	"internal/cli/forward",
	"internal/cli/generate",
	"internal/cli/health",
	"internal/cli/maps",
	"internal/cli/predict",
	"internal/cli/score",
	"internal/cli/search",
	"internal/cli/serve",
	"internal/cli/compare",
	"internal/cli/report",
	"internal/cli/train",
	"internal/cli/completion",
	"internal/cli/inspect",
	"internal/cli/tokenize",
	"cmd/farfield",
}

// heavy packages may import libraries; all others import nothing outside the
// standard library but golang.org/x/sys.
var heavy = []string{"internal/strict", "comm/mpi", "internal/sessions", "internal/serve", "internal/bench", "internal/report", "cmd/farfield"}

// testOnly packages may be imported by tests and commands alone.
var testOnly = []string{"internal/suite", "internal/oracle", "internal/check", "internal/attention/calltest"}

type pkg struct {
	dir           string
	imports, test []string
	documented    bool
}

func packages(t *testing.T) []pkg {
	t.Helper()
	var list []pkg
	err := filepath.WalkDir(".", func(path string, d fs.DirEntry, err error) error {
		if err != nil || !d.IsDir() {
			return err
		}
		base := d.Name()
		if path != "." && (strings.HasPrefix(base, ".") || strings.HasPrefix(base, "_") || base == "testdata") {
			return filepath.SkipDir
		}
		if path != "." {
			if _, err := os.Stat(filepath.Join(path, "go.mod")); err == nil {
				return filepath.SkipDir
			}
		}
		p, err := build.ImportDir(path, 0)
		if _, none := err.(*build.NoGoError); none {
			return nil
		}
		if err != nil {
			return err
		}
		dir := filepath.ToSlash(path)
		if dir == "." {
			dir = ""
		}
		list = append(list, pkg{dir, p.Imports, append(p.TestImports, p.XTestImports...), p.Doc != ""})
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return list
}

func TestImportsPointOneWay(t *testing.T) {
	for _, p := range packages(t) {
		if strings.HasPrefix(p.dir, "examples/") {
			continue
		}
		at := slices.Index(layers, p.dir)
		if at < 0 {
			t.Errorf("package %q is not in the list of layers", p.dir)
			continue
		}
		for _, imp := range p.imports {
			rest, ours := strings.CutPrefix(imp, module)
			if !ours {
				continue
			}
			rest = strings.TrimPrefix(rest, "/")
			if on := slices.Index(layers, rest); on >= at {
				t.Errorf("%q imports %q, which is not below it", p.dir, rest)
			}
			if slices.Contains(testOnly, rest) && !slices.Contains(testOnly, p.dir) && !strings.HasPrefix(p.dir, "cmd/") && !strings.HasPrefix(p.dir, "internal/cli/") {
				t.Errorf("%q imports %q, which is for tests and commands", p.dir, rest)
			}
		}
	}
}

func TestLibraryStaysLight(t *testing.T) {
	for _, p := range packages(t) {
		if slices.Contains(heavy, p.dir) || strings.HasPrefix(p.dir, "internal/cli/") {
			continue
		}
		for _, imp := range p.imports {
			first, _, _ := strings.Cut(imp, "/")
			std := !strings.Contains(first, ".")
			if !std && !strings.HasPrefix(imp, module) && !strings.HasPrefix(imp, "golang.org/x/sys/") {
				t.Errorf("%q imports %q", p.dir, imp)
			}
		}
	}
}

func TestEveryPackageIsDocumented(t *testing.T) {
	for _, p := range packages(t) {
		if !p.documented {
			t.Errorf("package %q has no package comment", p.dir)
		}
	}
}

func TestEveryPublicPackageHasAnExample(t *testing.T) {
	for _, p := range packages(t) {
		if strings.HasPrefix(p.dir, "internal/") || strings.Contains(p.dir, "/internal/") || strings.HasPrefix(p.dir, "cmd/") || strings.HasPrefix(p.dir, "examples/") {
			continue
		}
		found := false
		files, _ := filepath.Glob(filepath.Join(".", p.dir, "*_test.go"))
		for _, f := range files {
			file, err := parser.ParseFile(token.NewFileSet(), f, nil, parser.ParseComments|parser.SkipObjectResolution)
			if err != nil {
				t.Fatal(err)
			}
			for _, e := range doc.Examples(file) {
				found = found || e.Output != ""
			}
		}
		if !found {
			t.Errorf("package %q has no Example with output", p.dir)
		}
	}
}

func TestNamesSaySomething(t *testing.T) {
	empty := []string{"util", "utils", "helper", "helpers", "common", "misc", "base", "manager"}
	err := filepath.WalkDir(".", func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() && strings.HasPrefix(d.Name(), ".") && path != "." {
			return filepath.SkipDir
		}
		name := strings.TrimSuffix(strings.TrimSuffix(d.Name(), ".go"), "_test")
		if slices.Contains(empty, name) {
			t.Errorf("%s: the name says nothing", path)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}
