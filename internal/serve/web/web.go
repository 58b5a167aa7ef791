// Package web holds the page of farfield serve: embedded files that load nothing from outside the
// server.
package web

import (
	"bytes"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"net/http"
	"path"
	"sync"
	"time"
)

//go:embed *.html *.css *.js *.svg
var files embed.FS

// The types are stated here because a system's table may name others.
var contentTypes = map[string]string{
	".html": "text/html; charset=utf-8",
	".css":  "text/css; charset=utf-8",
	".js":   "text/javascript; charset=utf-8",
	".svg":  "image/svg+xml",
}

// Policy is the content-security policy of the page: scripts and styles may only come from files of
// the server, and no text becomes markup.
const Policy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; " +
	"base-uri 'none'; form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'"

type file struct {
	body      []byte
	kind, tag string
}

// load reads the embedded files once, by their path on the server.
var load = sync.OnceValue(func() map[string]file {
	list := map[string]file{}
	entries, _ := files.ReadDir(".") // an embedded folder is always readable
	for _, e := range entries {
		body, _ := files.ReadFile(e.Name())
		sum := sha256.Sum256(body)
		f := file{body, contentTypes[path.Ext(e.Name())], `"` + hex.EncodeToString(sum[:8]) + `"`}
		list["/"+e.Name()] = f
		if e.Name() == "index.html" {
			list["/"] = f
		}
	}
	return list
})

// Page answers GET and HEAD for "/" and for the page's files, with 404 for other paths and 405 for
// other methods. Its files need no key.
type Page struct{}

// HasFile reports whether the page has a file at path, "/" among them.
func (Page) HasFile(path string) bool {
	_, found := load()[path]
	return found
}

// ServeHTTP sends a file of the page.
func (Page) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	f, found := load()[r.URL.Path]
	if !found {
		http.NotFound(w, r)
		return
	}
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		w.Header().Set("Allow", "GET, HEAD")
		http.Error(w, "method "+r.Method+" is not GET or HEAD", http.StatusMethodNotAllowed)
		return
	}
	h := w.Header()
	h.Set("Content-Type", f.kind)
	h.Set("ETag", f.tag)
	h.Set("Cache-Control", "no-cache") // asked for by tag each time: a new server has a new page
	h.Set("Content-Security-Policy", Policy)
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Referrer-Policy", "no-referrer")
	h.Set("Cross-Origin-Opener-Policy", "same-origin")
	h.Set("Cross-Origin-Resource-Policy", "same-origin")
	http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(f.body))
}
