package inference

import (
	"os"
	"path/filepath"
	"testing"
)

func TestHashOfAFolderIsOfItsModelAlone(t *testing.T) {
	dir := t.TempDir()
	if err := os.CopyFS(dir, os.DirFS(publishedModel)); err != nil {
		t.Fatal(err)
	}
	m, err := Open(dir, Options{})
	if err != nil {
		t.Fatal(err)
	}
	hash := func() string {
		sum, err := m.HashFiles()
		if err != nil {
			t.Fatal(err)
		}
		return sum
	}
	write := func(name, content string) {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o666); err != nil {
			t.Fatal(err)
		}
	}
	first := hash()
	link := filepath.Join(t.TempDir(), "link")
	if err := os.Symlink(dir, link); err != nil {
		t.Fatal(err)
	}
	linked, err := Open(link, Options{})
	if err != nil {
		t.Fatal(err)
	}
	if got, err := linked.HashFiles(); err != nil || got != first {
		t.Errorf("behind a link the sum is %s, %v, want %s", got, err, first)
	}
	write("README.md", "about")
	write("vectors.jsonl", "{}")
	if got := hash(); got != first {
		t.Errorf("files that are no part of the model change %s to %s", first, got)
	}
	for _, name := range []string{"model.safetensors", "config.json"} {
		content, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		write(name, string(content)+" ")
		if hash() == first {
			t.Errorf("%s: a change leaves the sum", name)
		}
		write(name, string(content))
	}
}
