package task

import (
	"bytes"
	"compress/gzip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// write writes files and their folders into a new folder.
func write(t *testing.T, files map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	for name, text := range files {
		path := filepath.Join(dir, filepath.FromSlash(name))
		if err := os.MkdirAll(filepath.Dir(path), 0o777); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o666); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func TestFolderIsReadInOrder(t *testing.T) {
	dir := write(t, map[string]string{
		"b.txt":        "B",
		"a/z.txt":      "A",
		"a/deep/x":     "X",
		"c.bin":        "C\x00C",
		"d.late":       strings.Repeat("d", binaryHead) + "\x00",
		"e.latin1":     "\xe9",
		".git/objects": "hidden",
		".profile":     "hidden",
		"f.empty":      "",
	})
	late := strings.Repeat("d", binaryHead) + "\x00"
	if err := os.Symlink(filepath.Join(dir, "b.txt"), filepath.Join(dir, "link")); err != nil {
		t.Log("links not tested:", err)
	}
	for _, c := range []struct {
		utf8                    bool
		text                    string
		files, skipped, notUTF8 int
	}{
		{false, "XAB" + late + "\xe9", 6, 1, 0},
		{true, "XAB" + late, 5, 2, 1},
	} {
		got, err := ReadCorpus(dir, c.utf8, false)
		if err != nil {
			t.Fatal(err)
		}
		if string(got.Text) != c.text || got.Files != c.files || got.Skipped != c.skipped || got.NotUTF8 != c.notUTF8 {
			t.Errorf("utf8 only %t: %d bytes, %d files, %d skipped, %d not UTF-8; want %d, %d, %d, %d",
				c.utf8, len(got.Text), got.Files, got.Skipped, got.NotUTF8, len(c.text), c.files, c.skipped, c.notUTF8)
		}
	}
}

func TestFolderMayBeALink(t *testing.T) {
	dir := write(t, map[string]string{"a": "text"})
	link := filepath.Join(t.TempDir(), "link")
	if err := os.Symlink(dir, link); err != nil {
		t.Skip(err)
	}
	if c, err := ReadCorpus(link, true, false); err != nil || string(c.Text) != "text" {
		t.Errorf("%v, %v", c, err)
	}
}

func TestLinkedFilesAreRead(t *testing.T) {
	store := write(t, map[string]string{"1": "one", "d/2": "two"})
	dir := t.TempDir()
	for name, target := range map[string]string{"a": "1", "b": "d", "c": "none"} {
		if err := os.Symlink(filepath.Join(store, target), filepath.Join(dir, name)); err != nil {
			t.Skip(err)
		}
	}
	if c, err := ReadCorpus(dir, true, false); err != nil || string(c.Text) != "onetwo" || c.Files != 2 {
		t.Errorf("%v, %v", c, err)
	}
}

func TestFileIsReadWhateverItHolds(t *testing.T) {
	path := filepath.Join(write(t, map[string]string{"a.bin": "\x00\xff"}), "a.bin")
	if c, err := ReadCorpus(path, true, false); err != nil || string(c.Text) != "\x00\xff" {
		t.Errorf("%v, %v", c, err)
	}
}

func TestGzipFileIsInflated(t *testing.T) {
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	text := strings.Repeat("one line of a log\n", 200)
	if _, err := z.Write([]byte(text)); err != nil {
		t.Fatal(err)
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	dir := write(t, map[string]string{"log.gz": b.String(), "damaged.gz": b.String()[:b.Len()-9], "readme": "plain"})
	c, err := ReadCorpus(filepath.Join(dir, "log.gz"), false, false)
	if err != nil || string(c.Text) != text {
		t.Errorf("%d bytes of %d are read, error %v", len(c.Text), len(text), err)
	}
	damaged := filepath.Join(dir, "damaged.gz")
	if _, err := ReadCorpus(damaged, false, false); err == nil || !strings.HasPrefix(err.Error(), damaged) {
		t.Errorf("error of a damaged file is %v", err)
	}
	if c, err := ReadCorpus(dir, false, false); err != nil || string(c.Text) != "plain" || c.Skipped != 2 {
		t.Errorf("a folder has %q, %d skipped, error %v", c.Text, c.Skipped, err)
	}
}

func TestNothingToReadIsAnError(t *testing.T) {
	for _, c := range []struct {
		name, path, want string
	}{
		{"empty folder", t.TempDir(), "holds no text"},
		{"only binary", write(t, map[string]string{"x": "\x00"}), "1 skipped"},
		{"empty file", filepath.Join(write(t, map[string]string{"x": ""}), "x"), "empty"},
		{"missing", filepath.Join(t.TempDir(), "none"), "none"},
	} {
		if _, err := ReadCorpus(c.path, false, false); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: error is %v", c.name, err)
		}
	}
}

func TestGoSourceLeavesOut(t *testing.T) {
	root := write(t, map[string]string{
		"src/b/b.go":            "package b\n",
		"src/a.go":              "package a\n",
		"src/a_test.go":         "no",
		"src/cmd/x.go":          "no",
		"src/b/internal/x.go":   "no",
		"src/b/testdata/x.go":   "no",
		"src/b/x.s":             "no",
		"src/b/tables.go":       strings.Repeat("x", goFileBytes+1),
		"src/vendor/x/y/z/x.go": "no",
	})
	c, err := goSource(root)
	if err != nil {
		t.Fatal(err)
	}
	if got := string(c.Text); got != "package a\npackage b\n" || c.Files != 2 {
		t.Errorf("read %q of %d files", got, c.Files)
	}
	if _, err := goSource(t.TempDir()); err == nil {
		t.Error("a folder that is no toolchain was read")
	}
}

func TestDefaultCorpusWithoutGo(t *testing.T) {
	t.Setenv("GOROOT", t.TempDir())
	c := DefaultCorpus()
	if !strings.Contains(c.Name, "wrote itself") || c.Files != 0 || len(c.Text) < goSourceBytes {
		t.Errorf("%s: %d bytes of %d files", c.Name, len(c.Text), c.Files)
	}
}

func TestInventedTextRepeats(t *testing.T) {
	a, b, c := InventText(1, 5000), InventText(1, 5000), InventText(2, 5000)
	if string(a.Text) != string(b.Text) || string(a.Text) == string(c.Text) {
		t.Error("the text is not a function of the seed")
	}
	for _, want := range []string{" + ", "[", "The "} {
		if !strings.Contains(string(a.Text), want) {
			t.Errorf("%q does not appear", want)
		}
	}
}

// The folder of a stranger chooses no toolchain.
func TestGoRootIsOfTheInstalledToolchain(t *testing.T) {
	if _, err := exec.LookPath("go"); err != nil {
		t.Skip(err)
	}
	t.Chdir(folderOf(t, map[string][]byte{"go.mod": []byte("module x\n\ngo 1.999\n")}))
	for name, value := range map[string]string{"GOROOT": "", "GOTOOLCHAIN": "auto", "GOPROXY": "off"} {
		t.Setenv(name, value)
	}
	if root, err := findGoRoot(); err != nil || root == "" {
		t.Errorf("the folder of the toolchain is %q: %v", root, err)
	}
}
