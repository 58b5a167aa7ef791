package page

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestPartIsReplacedOrAppended(t *testing.T) {
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
	if text, err := p.ReadFile(path); err != nil || text != nil {
		t.Errorf("a page without the part has %q, %v", text, err)
	}
	if err := p.WriteFile(path, []byte("one\n")); err != nil {
		t.Fatal(err)
	}
	want := "# Page\n\n## Title\n\n<!-- begin -->\none\n<!-- end -->\n"
	holds(want)
	if text, err := p.ReadFile(path); err != nil || string(text) != "one\n" {
		t.Errorf("the part is %q, %v", text, err)
	}
	put(want + "more\n")
	if err := p.WriteFile(path, []byte("two\n")); err != nil {
		t.Fatal(err)
	}
	holds(strings.Replace(want, "one", "two", 1) + "more\n")
	put("<!-- begin -->")
	if err := p.WriteFile(path, nil); err == nil {
		t.Error("no error where the second marker is missing")
	}
	holds("<!-- begin -->")
	if text, err := p.ReadFile(path); err != nil || text != nil {
		t.Errorf("half a part is %q, %v", text, err)
	}
	if _, err := p.ReadFile(path + "x"); err == nil {
		t.Error("no error of a page that is not there")
	}
	if err := p.WriteFile(path+"x", nil); err == nil {
		t.Error("no error without a page")
	}
}
