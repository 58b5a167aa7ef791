package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/farfield-ml/farfield/internal/cli/data"
	"github.com/farfield-ml/farfield/internal/cli/env"
	"github.com/farfield-ml/farfield/internal/task"
)

func TestDataList(t *testing.T) {
	dir := t.TempDir()
	out := works(t, "data", "list", "--folder", dir)
	for _, want := range []string{"mnist", "11.6 MB", "generated", "not verified: no published checksum known", "text films", "in " + dir} {
		if !strings.Contains(out, want) {
			t.Errorf("the list does not say %q:\n%s", want, out)
		}
	}
	out = works(t, "data", "list", "cifar10", "--folder", dir)
	for _, want := range []string{"https://www.cs.toronto.edu/~kriz/cifar-10-binary.tar.gz", "170.1 MB", "SHA-256", filepath.Join(dir, "cifar10")} {
		if !strings.Contains(out, want) {
			t.Errorf("cifar10 does not say %q:\n%s", want, out)
		}
	}
	var list []data.ListedSet
	if err := json.Unmarshal([]byte(works(t, "data", "list", "--json", "--folder", dir)), &list); err != nil || len(list) < 10 || list[0].IsReady {
		t.Errorf("%v, %v", list, err)
	}
	refuses(t, `data set "mnst": unknown; there are: mnist,`, "data", "list", "mnst")
}

// The folder comes from the flag, FARFIELD_DATA, XDG_DATA_HOME or the cache, in this
// order.
func TestDataFolder(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("there is no XDG_DATA_HOME")
	}
	a, b := t.TempDir(), t.TempDir()
	t.Setenv("FARFIELD_DATA", "")
	t.Setenv("XDG_DATA_HOME", a)
	if out := works(t, "data", "list"); !strings.Contains(out, "in "+filepath.Join(a, "farfield")) {
		t.Errorf("XDG_DATA_HOME: %s", out)
	}
	t.Setenv("FARFIELD_DATA", b)
	if out := works(t, "data", "list"); !strings.Contains(out, "in "+b) {
		t.Errorf("FARFIELD_DATA: %s", out)
	}
	if out := works(t, "data", "list", "--folder", a); !strings.Contains(out, "in "+a+"\n") {
		t.Errorf("--folder: %s", out)
	}
	if out := works(t, "data", "list", "--help"); strings.Count(out, "$FARFIELD_DATA") != 1 {
		t.Errorf("--help names the variable another number of times than once:\n%s", out)
	}
}

func TestDataFetchFrom(t *testing.T) {
	dir, from := t.TempDir(), t.TempDir()
	refuses(t, "input.txt is not there; its address is https://", "data", "fetch", "tinyshakespeare", "--from", from, "--folder", dir)
	if err := os.WriteFile(filepath.Join(from, "input.txt"), []byte("To be"), 0o666); err != nil {
		t.Fatal(err)
	}
	refuses(t, "input.txt: it has 5 bytes, 1115394 are known", "data", "fetch", "tinyshakespeare", "--from", from, "--folder", dir)
	// Of this one nothing is known.
	if err := os.WriteFile(filepath.Join(from, "2600-0.txt"), []byte("Well, Prince"), 0o666); err != nil {
		t.Fatal(err)
	}
	out := works(t, "data", "fetch", "warandpeace", "--from", from, "--folder", dir)
	if !strings.Contains(out, "verified by: no published checksum known; complete by the file that it was copied from") {
		t.Errorf("prints %s", out)
	}
	if out := works(t, "data", "verify", "warandpeace", "--folder", dir, "--json"); !strings.Contains(out, `"name": "warandpeace"`) {
		t.Errorf("printed %s", out)
	}
	if out := works(t, "data", "verify", "warandpeace", "--folder", dir); !strings.Contains(out, "no published checksum known; complete by") {
		t.Errorf("prints %s", out)
	}
	if got, err := os.ReadFile(filepath.Join(dir, "warandpeace", "2600-0.txt")); err != nil || string(got) != "Well, Prince" {
		t.Errorf("%q, %v", got, err)
	}
	refuses(t, "it is generated: farfield data generate listops", "data", "fetch", "listops", "--folder", dir)
	if status, _, errs := command(t, "data", "verify", "mnist", "--folder", dir); status != env.StatusFailure || !strings.Contains(errs, "data set mnist") {
		t.Errorf("status %d, %s", status, errs)
	}
}

// What is generated is what the task makes, whatever the number of threads, and is
// read again.
func TestDataGenerate(t *testing.T) {
	dir := t.TempDir()
	flags := []string{"data", "generate", "listops", "--train", "7", "--valid", "3", "--test", "2", "--seed", "5", "--folder"}
	works(t, append(flags, dir)...)
	src, err := task.OpenListOps(filepath.Join(dir, "listops"))
	if err != nil {
		t.Fatal(err)
	}
	if got := src.Spec().Count; got != [3]int{7, 3, 2} {
		t.Errorf("samples %v", got)
	}
	again := t.TempDir()
	works(t, append(flags, again, "--threads", "2")...)
	for _, name := range []string{"basic_train.tsv", "basic_val.tsv", "basic_test.tsv"} {
		a, err := os.ReadFile(filepath.Join(dir, "listops", name))
		if err != nil {
			t.Fatal(err)
		}
		if b, err := os.ReadFile(filepath.Join(again, "listops", name)); err != nil || !bytes.Equal(a, b) {
			t.Errorf("%s: two runs differ, %v", name, err)
		}
	}
	works(t, "data", "generate", "pathfinder32", "--train", "16", "--contour", "9", "--seed", "5", "--folder", dir)
	paths, err := task.OpenPathfinder(filepath.Join(dir, "pathfinder32"), 9)
	if err != nil {
		t.Fatal(err)
	}
	if got := paths.Spec().Count; got != [3]int{16, 2, 2} {
		t.Errorf("images %v", got)
	}
	made, err := task.NewPathfinder(9, 5)
	if err != nil {
		t.Fatal(err)
	}
	for split, n := range paths.Spec().Count {
		for i := range n {
			var a, b task.Sample
			if err := errors.Join(paths.Sample(&a, task.Split(split), i), made.Sample(&b, task.Split(split), i)); err != nil {
				t.Fatal(err)
			}
			if a.Class != b.Class || !slices.Equal(a.Tokens, b.Tokens) {
				t.Errorf("image %d of %v is not what the task makes", i, task.Split(split))
			}
		}
	}
	empty := t.TempDir()
	for flags, want := range map[string]string{
		"pathfinder32 --train 20":  "--train: it is 20, a multiple of 8 is needed",
		"pathfinder32 --valid 8":   "--valid: the images of pathfinder32 are divided",
		"pathfinder32 --contour 7": "--contour: it is 7; there are 6, 9 and 14",
		"listops --contour 6":      "--contour: is of pathfinder32",
	} {
		refuses(t, want, append(append([]string{"data", "generate"}, strings.Fields(flags)...), "--folder", empty)...)
	}
	refuses(t, "--test: it is 0, 1 to", "data", "generate", "listops", "--test", "0", "--folder", empty)
	if list, err := os.ReadDir(empty); err != nil || len(list) > 0 {
		t.Errorf("refused flags leave %v, %v", list, err)
	}
	refuses(t, "it is not generated: farfield data fetch mnist", "data", "generate", "mnist", "--folder", dir)
}
