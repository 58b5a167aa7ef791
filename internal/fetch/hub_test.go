package fetch

import (
	"context"
	"crypto/sha1"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
)

const hubCommit = "0123456789abcdef0123456789abcdef01234567"

// hubServer behaves as the hub does: it lists files, tells checksums, and redirects to a store on another
// host for large files, where no token belongs.
type hubServer struct {
	*httptest.Server
	store *httptest.Server
	files map[string]string
	large map[string]bool // files of the store, with SHA-256
	token string          // "": public

	mu       sync.Mutex
	requests []string // method, path and range
	breaks   int      // answers of the store that end after half of their bytes
	tampers  bool     // the store gives other bytes
}

func newHubServer(t *testing.T, files map[string]string, large ...string) *hubServer {
	t.Helper()
	h := &hubServer{files: files, large: map[string]bool{}}
	for _, name := range large {
		h.large[name] = true
	}
	h.Server = httptest.NewServer(http.HandlerFunc(h.serve))
	h.store = httptest.NewServer(http.HandlerFunc(h.serveStore))
	t.Cleanup(h.Close)
	t.Cleanup(h.store.Close)
	return h
}

func (h *hubServer) note(r *http.Request) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.requests = append(h.requests, strings.TrimSpace(r.Method+" "+r.URL.Path+" "+r.Header.Get("Range")))
}

func (h *hubServer) serve(w http.ResponseWriter, r *http.Request) {
	h.note(r)
	if h.token != "" && r.Header.Get("Authorization") != "Bearer "+h.token {
		w.WriteHeader(http.StatusUnauthorized)
		return
	}
	switch path := strings.TrimPrefix(r.URL.Path, "/"); {
	case path == "api/models/org/name/revision/main" || path == "api/models/org/name/revision/"+hubCommit:
		var siblings []map[string]string
		for _, name := range slices.Sorted(maps.Keys(h.files)) {
			siblings = append(siblings, map[string]string{"rfilename": name})
		}
		_ = json.NewEncoder(w).Encode(map[string]any{"sha": hubCommit, "siblings": siblings})
	case strings.HasPrefix(path, "org/name/resolve/"):
		http.Redirect(w, r, "/org/renamed/"+strings.TrimPrefix(path, "org/name/"), http.StatusTemporaryRedirect)
	case strings.HasPrefix(path, "org/renamed/resolve/"+hubCommit+"/"):
		name := strings.TrimPrefix(path, "org/renamed/resolve/"+hubCommit+"/")
		text, has := h.files[name]
		if !has {
			w.WriteHeader(http.StatusNotFound)
			return
		}
		if h.large[name] {
			w.Header().Set("X-Linked-Etag", fmt.Sprintf("%q", fmt.Sprintf("%x", sha256.Sum256([]byte(text)))))
			w.Header().Set("X-Linked-Size", strconv.Itoa(len(text)))
			http.Redirect(w, r, strings.Replace(h.store.URL, "127.0.0.1", "localhost", 1)+"/"+name, http.StatusFound)
			return
		}
		w.Header().Set("Etag", fmt.Sprintf("W/%q", fmt.Sprintf("%x", sha1.Sum([]byte(fmt.Sprintf("blob %d\x00%s", len(text), text))))))
		w.Header().Set("Content-Length", strconv.Itoa(len(text)))
		if r.Method == http.MethodGet {
			_, _ = w.Write([]byte(text))
		}
	default:
		w.WriteHeader(http.StatusNotFound)
	}
}

func (h *hubServer) serveStore(w http.ResponseWriter, r *http.Request) {
	h.note(r)
	if r.Header.Get("Authorization") != "" {
		w.WriteHeader(http.StatusTeapot) // the token has left its host
		return
	}
	text := h.files[strings.TrimPrefix(r.URL.Path, "/")]
	h.mu.Lock()
	broken := h.breaks > 0 && len(text) > 1000
	if broken {
		h.breaks--
	}
	if h.tampers {
		text = strings.ToUpper(text)
	}
	h.mu.Unlock()
	from := 0
	if ask, has := strings.CutPrefix(r.Header.Get("Range"), "bytes="); has {
		from, _ = strconv.Atoi(strings.TrimSuffix(ask, "-"))
		w.Header().Set("Content-Range", fmt.Sprintf("bytes %d-%d/%d", from, len(text)-1, len(text)))
	}
	w.Header().Set("Content-Length", strconv.Itoa(len(text)-from))
	if from > 0 {
		w.WriteHeader(http.StatusPartialContent)
	}
	end := len(text)
	if broken {
		end = (from + end) / 2
	}
	_, _ = w.Write([]byte(text[from:end]))
	if broken {
		w.(http.Flusher).Flush()
		panic(http.ErrAbortHandler)
	}
}

var hubFilesOfTest = map[string]string{
	"config.json": `{"model_type":"bert"}`, "tokenizer.json": "{}", "modules.json": "[]", "1_Pooling/config.json": "{}", "model.safetensors": strings.Repeat("weights ", 9999),
	"pytorch_model.bin": "pickle", "README.md": "words", "onnx/model.onnx": "o", "tokenizer.model": "pieces", "../../escape.json": "x", "2_Dense/model.safetensors": "dense",
}

// TestModelsOfTheHubLieInItsCache fetches through redirects, with links to blobs by their checksums, and
// finds the model again without a network.
func TestModelsOfTheHubLieInItsCache(t *testing.T) {
	t.Parallel()
	s := newHubServer(t, hubFilesOfTest, "model.safetensors", "2_Dense/model.safetensors")
	s.token, s.breaks = "secret", 2
	h := &Hub{Endpoint: s.URL, Cache: t.TempDir(), Token: "secret"}
	name, is := ParseHubName("org/name")
	if !is {
		t.Fatal("org/name is no name")
	}
	if _, has := h.Find(name); has {
		t.Error("an empty cache has the model")
	}
	dir, err := h.Fetch(t.Context(), name)
	if err != nil {
		t.Fatal(err)
	}
	if want := filepath.Join(h.Cache, "models--org--name", "snapshots", hubCommit); dir != want {
		t.Errorf("the folder is %s, want %s", dir, want)
	}
	for file, text := range hubFilesOfTest {
		have, err := os.ReadFile(filepath.Join(dir, file))
		switch isNeeded := strings.HasSuffix(file, ".json") && !strings.HasPrefix(file, "..") || strings.HasSuffix(file, "model.safetensors"); {
		case isNeeded && (err != nil || string(have) != text):
			t.Errorf("%s: %v, other bytes", file, err)
		case !isNeeded && err == nil:
			t.Errorf("%s: is there, though nothing reads it", file)
		}
	}
	if ref, err := os.ReadFile(filepath.Join(h.Cache, "models--org--name", "refs", "main")); err != nil || string(ref) != hubCommit {
		t.Errorf("refs/main is %q, %v", ref, err)
	}
	sum := fmt.Sprintf("%x", sha256.Sum256([]byte(hubFilesOfTest["model.safetensors"])))
	if link, err := os.Readlink(filepath.Join(dir, "model.safetensors")); err == nil && filepath.ToSlash(link) != "../../blobs/"+sum {
		t.Errorf("the link is %s, want the blob %s", link, sum)
	}
	if found, has := h.Find(name); !has || found != dir {
		t.Errorf("found in %q, %t", found, has)
	}
	resumed := slices.ContainsFunc(s.requests, func(r string) bool { return strings.HasPrefix(r, "GET /model.safetensors bytes=") })
	if !resumed {
		t.Errorf("a broken download is not resumed: %q", s.requests)
	}
	before := len(s.requests)
	if again, err := h.Fetch(t.Context(), HubName{"org/name", hubCommit}); err != nil || again != dir || len(s.requests) != before+1 {
		t.Errorf("%s, %v: %d requests for a model that is there", again, err, len(s.requests)-before)
	}
	s.Close()
	h.IsOffline = true
	if again, err := h.Fetch(t.Context(), name); err != nil || again != dir {
		t.Errorf("offline: %s, %v", again, err)
	}
	if _, err := h.Fetch(t.Context(), HubName{"org/other", "main"}); err == nil || !strings.Contains(err.Error(), "model org/other: is not in") {
		t.Errorf("offline: %v", err)
	}
}

func TestShardsOfAnIndexAreFetched(t *testing.T) {
	t.Parallel()
	files := map[string]string{"config.json": "{}", "model.safetensors.index.json": `{"weight_map":{"a":"model-1.safetensors","b":"model-2.safetensors"}}`, "model-1.safetensors": "one", "model-2.safetensors": "two", "model-3.safetensors": "three"}
	s := newHubServer(t, files)
	h := &Hub{Endpoint: s.URL, Cache: t.TempDir()}
	dir, err := h.Fetch(t.Context(), HubName{"org/name", "main"})
	if err != nil {
		t.Fatal(err)
	}
	list, err := os.ReadDir(dir)
	if err != nil || len(list) != 4 {
		t.Errorf("%v, %v", list, err)
	}
	if err := os.Remove(filepath.Join(dir, "model-2.safetensors")); err != nil {
		t.Fatal(err)
	}
	if _, has := h.Find(HubName{"org/name", "main"}); has {
		t.Error("a folder without a shard is whole")
	}
}

func TestHubRefusals(t *testing.T) {
	t.Parallel()
	whole := map[string]string{"config.json": "{}", "model.safetensors": "weights"}
	for want, c := range map[string]struct {
		files  map[string]string
		change func(s *hubServer, h *Hub)
		name   HubName
	}{
		"401 Unauthorized: there is no such model, or it needs HF_TOKEN": {whole, func(s *hubServer, _ *Hub) { s.token = "secret" }, HubName{"org/name", "main"}},
		"401 Unauthorized: the token of HF_TOKEN has no access":          {whole, func(s *hubServer, h *Hub) { s.token, h.Token = "secret", "other" }, HubName{"org/name", "main"}},
		"404 Not Found: there is no such model, revision or file":        {whole, func(*hubServer, *Hub) {}, HubName{"org/none", "v1"}},
		"has neither model.safetensors nor model.safetensors.index.json": {map[string]string{"config.json": "{}", "pytorch_model.bin": "x"}, func(*hubServer, *Hub) {}, HubName{"org/name", "main"}},
		"has no config.json":                 {map[string]string{"model.safetensors": "x"}, func(*hubServer, *Hub) {}, HubName{"org/name", "main"}},
		"the hub says":                       {whole, func(s *hubServer, _ *Hub) { s.large["model.safetensors"], s.tampers = true, true }, HubName{"org/name", "main"}},
		"is no name of a file in the folder": {map[string]string{"config.json": "{}", "model.safetensors.index.json": `{"weight_map":{"a":"../x.safetensors"}}`}, func(*hubServer, *Hub) {}, HubName{"org/name", "main"}},
	} {
		s := newHubServer(t, c.files)
		h := &Hub{Endpoint: s.URL, Cache: t.TempDir()}
		c.change(s, h)
		if _, err := h.Fetch(t.Context(), c.name); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
		if _, has := h.Find(c.name); has {
			t.Errorf("%s: the cache has the model", want)
		}
	}
}

// TestInterruptedFetchGoesOn ends a fetch within a file; another one takes the rest.
func TestInterruptedFetchGoesOn(t *testing.T) {
	t.Parallel()
	s := newHubServer(t, hubFilesOfTest, "model.safetensors")
	ctx, stop := context.WithCancel(t.Context())
	h := &Hub{Endpoint: s.URL, Cache: t.TempDir(), Progress: func(file string, done, total int64) {
		if file == "model.safetensors" && done < total {
			stop()
		}
	}}
	s.breaks = 1
	if _, err := h.Fetch(ctx, HubName{"org/name", "main"}); err == nil {
		t.Fatal("the fetch was not interrupted")
	}
	if _, err := h.Fetch(t.Context(), HubName{"org/name", "main"}); err != nil {
		t.Fatal(err)
	}
	if !slices.ContainsFunc(s.requests, func(r string) bool { return strings.HasPrefix(r, "GET /model.safetensors bytes=") }) {
		t.Errorf("the second fetch began anew: %q", s.requests)
	}
}

func TestNamesOfTheHub(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]HubName{
		"org/name": {"org/name", "main"}, "Org-1/na.me_2@v1.0": {"Org-1/na.me_2", "v1.0"}, "org/name@refs/pr/1": {"org/name", "refs/pr/1"},
		"name": {}, "./org/name": {}, "org/name/more": {}, "/org/name": {}, "org/../name": {}, "org/name@": {}, "org/name@a..b": {}, "run/001/": {}, "a--b/c": {},
	} {
		if got, is := ParseHubName(text); got != want || is != (want != HubName{}) {
			t.Errorf("%s: %+v, %t", text, got, is)
		}
	}
}
