package web_test

import (
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/farfield-ml/farfield/internal/serve/web"
)

func get(method, path string, header ...string) *http.Response {
	r := httptest.NewRequest(method, path, nil)
	for i := 0; i+1 < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	w := httptest.NewRecorder()
	web.Page{}.ServeHTTP(w, r)
	return w.Result()
}

func TestPageIsServedWithItsPolicy(t *testing.T) {
	for path, kind := range map[string]string{
		"/": "text/html; charset=utf-8", "/index.html": "text/html; charset=utf-8",
		"/app.js": "text/javascript; charset=utf-8", "/style.css": "text/css; charset=utf-8", "/icon.svg": "image/svg+xml",
	} {
		r := get("GET", path)
		if r.StatusCode != 200 || r.Header.Get("Content-Type") != kind || r.Header.Get("Content-Security-Policy") != web.Policy {
			t.Errorf("%s: %d, %v", path, r.StatusCode, r.Header)
		}
		if r := get("GET", path, "If-None-Match", r.Header.Get("ETag")); r.StatusCode != http.StatusNotModified {
			t.Errorf("%s with its tag: %d", path, r.StatusCode)
		}
	}
	if r := get("POST", "/"); r.StatusCode != http.StatusMethodNotAllowed {
		t.Errorf("POST /: %d", r.StatusCode)
	}
	for _, path := range []string{"/web.go", "/v1/models", "/../web.go", "/nothing"} {
		if r := get("GET", path); r.StatusCode != http.StatusNotFound {
			t.Errorf("%s: %d", path, r.StatusCode)
		}
	}
}

// The policy would stop most of these in the browser, where the fault is seen late.
func TestFilesKeepThePolicy(t *testing.T) {
	rules := map[string]*regexp.Regexp{
		"inline style":        regexp.MustCompile(`(?i)<style|\sstyle=|setAttribute\(.style`),
		"inline script":       regexp.MustCompile(`(?i)<script>|\son[a-z]+=["']|javascript:`),
		"text that is markup": regexp.MustCompile(`innerHTML|outerHTML|insertAdjacentHTML|document\.write|DOMParser|eval\(|new Function`),
		"an outside address":  regexp.MustCompile(`https?://[^\s"'` + "`" + `]+`),
	}
	names, err := filepath.Glob("*.*")
	if err != nil {
		t.Fatal(err)
	}
	seen := 0
	for _, name := range names {
		if strings.HasSuffix(name, ".go") {
			continue
		}
		seen++
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		for rule, re := range rules {
			for _, m := range re.FindAllString(string(text), -1) {
				if m != "http://www.w3.org/2000/svg" { // a name, not an address that is read
					t.Errorf("%s: %s: %s", name, rule, m)
				}
			}
		}
	}
	if seen < 5 {
		t.Errorf("only %d files of the page", seen)
	}
}

// Modules are fetched by name: each import and each file of the page exists.
func TestPageNamesItsFiles(t *testing.T) {
	names, _ := filepath.Glob("*.*")
	re := regexp.MustCompile(`(?:from|src=|href=) ?["']\.?/?([a-z]+\.(?:js|css|svg))["']`)
	found := map[string]bool{}
	for _, name := range names {
		if strings.HasSuffix(name, ".go") {
			continue
		}
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range re.FindAllStringSubmatch(string(text), -1) {
			found[m[1]] = true
		}
	}
	for _, name := range names {
		if !strings.HasSuffix(name, ".go") && name != "index.html" && !found[name] {
			t.Errorf("%s: no file of the page names it", name)
		}
		delete(found, name)
	}
	for name := range found {
		t.Errorf("%s is named and missing", name)
	}
}
