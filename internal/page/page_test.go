package page

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestWrite(t *testing.T) {
	p := Part{"<!-- begin -->", "<!-- end -->", "## Title"}
	path := filepath.Join(t.TempDir(), "page.md")
	put := func(text string) {
		if err := os.WriteFile(path, []byte(text), 0o666); err != nil {
			t.Fatal(err)
		}
	}
	holds := func(want string) {
		t.Helper()
		if text, err := os.ReadFile(path); err != nil || string(text) != want {
			t.Errorf("page is\n%s, %v\nwant\n%s", text, err, want)
		}
	}
	put("# Page\n")
	if err := p.Write(path, []byte("one\n")); err != nil {
		t.Fatal(err)
	}
	want := "# Page\n\n## Title\n\n<!-- begin -->\none\n<!-- end -->\n"
	holds(want)
	put(want + "more\n")
	if err := p.Write(path, []byte("two\n")); err != nil {
		t.Fatal(err)
	}
	holds(strings.Replace(want, "one", "two", 1) + "more\n")
	put("<!-- begin -->")
	if err := p.Write(path, nil); err == nil {
		t.Error("no error where the second marker is missing")
	}
	holds("<!-- begin -->")
	if err := p.Write(path+"x", nil); err == nil {
		t.Error("no error without a page")
	}
}
