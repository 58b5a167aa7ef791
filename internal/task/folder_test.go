package task

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// textFolder writes n texts into each folder.
func textFolder(t *testing.T, n int, folders ...string) string {
	t.Helper()
	files := map[string][]byte{}
	for _, folder := range folders {
		for i := range n {
			files[fmt.Sprintf("%s/%d.txt", folder, i)] = fmt.Appendf(nil, "text %d", i)
		}
	}
	return folderOf(t, files)
}

// link makes a link in dir.
func link(t *testing.T, dir, target, name string) {
	t.Helper()
	if err := os.Symlink(filepath.FromSlash(target), filepath.Join(dir, filepath.FromSlash(name))); err != nil {
		t.Skip(err)
	}
}

func TestFoldersOfSplitsHaveSeveralNames(t *testing.T) {
	for _, c := range []struct {
		folders []string
		count   [3]int
		ignored string
	}{
		{[]string{"train/a", "train/b", "valid/a", "test/b"}, [3]int{4, 2, 2}, ""},
		{[]string{"train/a", "train/b", "val/a", "val/b"}, [3]int{4, 4, 0}, ""},
		{[]string{"Train/a", "Train/b", "Validation/a", "TEST/b"}, [3]int{4, 2, 2}, ""},
		{[]string{"train/a", "train/b", "dev/a", "test/b"}, [3]int{4, 0, 2}, `2 in "dev", beside train`},
		{[]string{"train/a", "train/b", "train", "."}, [3]int{4, 0, 0}, "2 beside train; 2 in no folder of a class"},
		{[]string{"train/a", "train/b", ".x", "train/a/.x"}, [3]int{4, 0, 0}, ""},
	} {
		f, err := readClassFolder(textFolder(t, 2, c.folders...), splitter{seed: 1}, false, ".txt")
		if err != nil {
			t.Errorf("%q: %v", c.folders, err)
		} else if got := IgnoredFiles(&Sounds{classFolder: f}); f.countSamples() != c.count || !slices.Equal(f.classes, []string{"a", "b"}) || got != c.ignored {
			t.Errorf("%q: classes %q, %v files, ignored %q", c.folders, f.classes, f.countSamples(), got)
		}
	}
	// Names of splits beside other classes are classes.
	f, err := readClassFolder(textFolder(t, 9, "Train", "bus", "test"), splitter{seed: 1}, false, ".txt")
	if err != nil || !slices.Equal(f.classes, []string{"Train", "bus", "test"}) {
		t.Errorf("%+v, %v", f, err)
	}
	for want, folders := range map[string][]string{
		`hold the same split; one is needed`:                                                                   {"train/a", "train/b", "val/a", "valid/b"},
		`its folders are ["test" "val"], and train, to learn from, is not there`:                               {"test/a", "test/b", "val/a"},
		`the folder of class "c" holds no file .txt to learn from; remove it, or add files`:                    {"train/a", "train/b", "train/c/.x", "test/b"},
		`the folder of class "none" holds no file .txt to learn from`:                                          {"a", "b", "none/.x"},
		`class "c" is not among those to learn from, ["a" "b"]`:                                                {"train/a", "train/b", "val/c"},
		`it holds 1 folders with 2 files .txt to learn from; a folder for each of two classes or more is need`: {"train/a"},
	} {
		if _, err := readClassFolder(textFolder(t, 2, folders...), splitter{seed: 1}, false, ".txt"); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: error is %v, want %s", folders, err, want)
		}
	}
}

// A class may have no training files where others' files are scored, not where a model learns. Only
// draws of single items leave one out.
func TestClassesWithoutTrainingFilesAreNamed(t *testing.T) {
	dir := textFolder(t, 9, "a", "b")
	if err := os.MkdirAll(filepath.Join(dir, "c"), 0o777); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "c", "one.txt"), []byte("one"), 0o666); err != nil {
		t.Fatal(err)
	}
	missing := 0
	for seed := range uint64(40) {
		src := openSource(t, "file", Options{Seed: seed, DrawnSplits: true}, "data", dir).(*OwnTexts)
		isThere := slices.ContainsFunc(src.parts[Train], func(o ownText) bool { return o.class == 2 })
		if err := CheckTrainingClasses(src); err == nil != isThere || err != nil && !strings.HasPrefix(err.Error(), `class "c": `) {
			t.Errorf("seed %d: error is %v", seed, err)
		}
		if !isThere {
			missing++
		}
	}
	if missing == 0 || missing > 20 {
		t.Errorf("the class is missing with %d seeds of 40", missing)
	}
	if err := CheckTrainingClasses(openSource(t, "file", Options{Seed: 1}, "data", dir)); err != nil {
		t.Errorf("divided by class: %v", err)
	}
	divided := textFolder(t, 2, "train/a", "train/b/.x", "train/c", "test/a", "test/b")
	src := openSource(t, "file", Options{}, "data", divided)
	if err := CheckTrainingClasses(src); err == nil || !strings.HasPrefix(err.Error(), `class "b": its folder in train holds no file`) {
		t.Errorf("error is %v", err)
	}
	if list, err := Baselines(src, 0); err != nil || len(list) != 3 {
		t.Errorf("%v, %v", list, err)
	}
}

// Records, tables and listed files have classes of their own, which draws of single items may leave out.
func TestDrawnClassesWithoutTrainingSamplesAreNamed(t *testing.T) {
	files := map[string][]byte{}
	list := "file,label\n"
	for i := range 15 {
		class := "ab"[i%2:][:1]
		if i == 14 {
			class = "c"
		}
		files[fmt.Sprintf("fa/%s/%d.fa", class, i)] = []byte(">x\nACGT\n")
		files[fmt.Sprintf("tables/%02d.csv", i)] = fmt.Appendf(nil, "x,label\n1,%s\n2,%s\n", class, class)
		files[fmt.Sprintf("%d.csv", i)] = []byte("1\n2\n")
		list += fmt.Sprintf("%d.csv,%s\n", i, class)
	}
	files["list.csv"] = []byte(list)
	dir := folderOf(t, files)
	for items, set := range map[string][]string{"records": {"fasta", "fa"}, "tables": {"series", "tables", "ask", "each"}, "files": {"series", "list.csv"}} {
		missing := 0
		for seed := range uint64(40) {
			src := openSource(t, set[0], Options{Seed: seed, DrawnSplits: true}, append([]string{"data", filepath.Join(dir, set[1])}, set[2:]...)...)
			isThere := false
			for i := range src.Spec().Count[Train] {
				s := take(t, src, Train, i)
				isThere = isThere || s.Class == 2 || slices.Contains(s.Labels, 2)
			}
			err := CheckTrainingClasses(src)
			if err == nil != isThere || err != nil && !strings.HasPrefix(err.Error(), `class "c": the data seed draws none of its `+items) {
				t.Errorf("%s, seed %d: error is %v", items, seed, err)
			}
			if !isThere {
				missing++
			}
		}
		if missing == 0 || missing > 20 {
			t.Errorf("%s: the class is missing with %d seeds of 40", items, missing)
		}
	}
}

func TestFilesWithoutASuffixOfTheTaskAreCounted(t *testing.T) {
	dir := folderOf(t, map[string][]byte{
		"a/1.txt": nil, "a/2.TXT": nil, "a/3.txt.gz": nil, "a/4.md": nil, "a/README": nil, "b/1.txt": nil, "b/x/2.md": nil, "c.md": nil, "b/.md": nil,
		"b/2.txt": nil, "b/3.txt": nil, "b/4.txt": nil, "b/5.txt": nil,
	})
	f, err := readClassFolder(dir, splitter{seed: 1}, false, ".txt")
	if err != nil {
		t.Fatal(err)
	}
	count := f.countSamples()
	want := `1 in no folder of a class; 1 with suffix ""; 2 with suffix ".md"`
	if got := IgnoredFiles(&Pictures{classFolder: f}); count[0]+count[1]+count[2] != 8 || got != want {
		t.Errorf("%v files, ignored %q, want %q", count, got, want)
	}
}

// A link is its target. Links back to a folder above end, and a place in the listed folder
// counts once.
func TestLinksInFoldersAreFollowed(t *testing.T) {
	const n = 5
	dir := textFolder(t, n, "data/a", "data/b", "other/c/x", "other/.hidden")
	data := filepath.Join(dir, "data")
	link(t, data, "../other/c", "c")
	link(t, data, "a", "again")
	link(t, data, "../../other/.hidden/0.txt", "a/one.txt")
	link(t, data, "1.txt", "a/copy.txt")
	link(t, data, "nothing", "a/none.txt")
	link(t, data, "loop", "a/loop")
	link(t, data, "../..", "b/up")
	for _, root := range []string{data, filepath.Join(dir, "link")} {
		if root != data {
			link(t, dir, "data", "link")
		}
		f, err := readClassFolder(root, splitter{seed: 1}, false)
		if err != nil {
			t.Fatal(err)
		}
		var paths []string
		for _, list := range f.files {
			for _, x := range list {
				paths = append(paths, fmt.Sprintf("%d %s", x.class, strings.TrimPrefix(x.path, root)))
			}
		}
		slices.Sort(paths)
		// Class a has its files and one.txt, b its files and all above, c the files of its target.
		up := 0
		for _, p := range paths {
			if strings.HasPrefix(p, "1 /b/up/") {
				up++
			}
		}
		if !slices.Equal(f.classes, []string{"a", "b", "c"}) || up < 2*n || len(paths) != n+1+n+up+n ||
			!slices.Contains(paths, "0 /a/one.txt") || !slices.Contains(paths, "2 /c/x/4.txt") || slices.Contains(paths, "0 /a/copy.txt") {
			t.Errorf("classes %q, files %q", f.classes, paths)
		}
		// nothing and loop, in a and in b/up/data/a
		if got := IgnoredFiles(&Sounds{classFolder: f}); got != "4 links without a target" {
			t.Errorf("ignored %q", got)
		}
	}
}

// The order of files decides their splits, so that it is the order of filepath.WalkDir.
func TestFilesAreListedInTheOrderOfWalkDir(t *testing.T) {
	dir := textFolder(t, 3, "a", "a.b", "a-b", "a/b", "B")
	var want, got []string
	if err := filepath.WalkDir(dir, func(path string, d os.DirEntry, err error) error {
		if !d.IsDir() {
			want = append(want, path)
		}
		return err
	}); err != nil {
		t.Fatal(err)
	}
	if err := walkFiles(dir, func(e folderEntry) { got = append(got, e.path) }); err != nil || !slices.Equal(got, want) {
		t.Errorf("%q, %v, want %q", got, err, want)
	}
}

func TestWalkFoldersFollowsLinks(t *testing.T) {
	dir, other := textFolder(t, 1, "a", ".b"), textFolder(t, 1, "c")
	for link, target := range map[string]string{"again": dir, "other": other} {
		if err := os.Symlink(target, filepath.Join(dir, link)); err != nil {
			t.Skip(err)
		}
	}
	got := map[string]string{}
	err := WalkFolders(dir, func(path, target string) { got[strings.TrimPrefix(path, dir)] = target })
	root, _ := filepath.EvalSymlinks(dir)
	linked, _ := filepath.EvalSymlinks(other)
	at := filepath.FromSlash
	want := map[string]string{"": root, at("/a"): filepath.Join(root, "a"), at("/again"): root, at("/other"): linked, at("/other/c"): filepath.Join(linked, "c")}
	if err != nil || !maps.Equal(got, want) {
		t.Errorf("%q, %v, want %q", got, err, want)
	}
}
