package fetch

import (
	"cmp"
	"context"
	"crypto/sha1"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"hash"
	"io"
	"io/fs"
	"net/http"
	"net/url"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/farfield-ml/farfield/internal/atomicfile"
	"github.com/farfield-ml/farfield/internal/infile"
	"github.com/farfield-ml/farfield/internal/lock"
)

// Limits of what a hub answers.
const (
	maxListing   = 16 << 20 // bytes of the list of a model's files
	maxHubFiles  = 1 << 14
	maxHubIndex  = 64 << 20 // bytes of an index of weights
	maxRedirects = 5
	maxResumes   = 8 // of one file, each after more of it has come
)

// Hub is a hub of models and the cache of their files. The cache has the layout of huggingface_hub:
// folders models--ORG--NAME with blobs named by their checksums, snapshots of revisions that link
// to blobs, and refs that map names of revisions to commits.
type Hub struct {
	Endpoint  string       // address without a path
	Token     string       // for models that are not public; "": none
	Cache     string       // folder that holds the folders models--ORG--NAME
	IsOffline bool         // use only the cache
	Client    *http.Client // nil: one with Limits
	Limits    Limits
	Progress  func(file string, done, total int64) // may be nil
	OnWait    func(process int)                    // may be nil; called once before waiting for another process
}

// NewHub returns the hub that the environment describes: HF_ENDPOINT, HF_TOKEN or the token in
// HF_HOME, HF_HUB_CACHE or the folder hub of HF_HOME, and HF_HUB_OFFLINE. It returns an error if
// HF_ENDPOINT is no address, or the system has no folder for the cache.
func NewHub() (*Hub, error) {
	h := &Hub{Endpoint: strings.TrimRight(cmp.Or(os.Getenv("HF_ENDPOINT"), "https://huggingface.co"), "/")}
	if u, err := url.Parse(h.Endpoint); err != nil || u.Scheme != "https" && u.Scheme != "http" || u.Host == "" {
		return nil, fmt.Errorf("HF_ENDPOINT: %q is no address such as https://huggingface.co", infile.Shorten(h.Endpoint))
	}
	home := os.Getenv("HF_HOME")
	if home == "" {
		cache := os.Getenv("XDG_CACHE_HOME")
		if cache == "" {
			user, err := os.UserHomeDir()
			if err != nil {
				return nil, fmt.Errorf("HF_HOME: it is not set, and there is no other: %w", err)
			}
			cache = filepath.Join(user, ".cache")
		}
		home = filepath.Join(cache, "huggingface")
	}
	h.Cache = cmp.Or(os.Getenv("HF_HUB_CACHE"), filepath.Join(home, "hub"))
	if h.Token = os.Getenv("HF_TOKEN"); h.Token == "" {
		if text, err := infile.ReadBounded(cmp.Or(os.Getenv("HF_TOKEN_PATH"), filepath.Join(home, "token")), 4096); err == nil {
			h.Token = strings.TrimSpace(string(text))
		}
	}
	switch strings.ToUpper(os.Getenv("HF_HUB_OFFLINE")) {
	case "1", "ON", "YES", "TRUE":
		h.IsOffline = true
	}
	return h, nil
}

// HubName is the name of a model on a hub: org/name, and a branch, tag or commit.
type HubName struct{ Repository, Revision string }

var hubName = regexp.MustCompile(`^([A-Za-z0-9][A-Za-z0-9._-]{0,95}/[A-Za-z0-9][A-Za-z0-9._-]{0,95})(?:@([A-Za-z0-9][A-Za-z0-9._/-]{0,127}))?$`)

// ParseHubName parses org/name[@revision], and reports whether text has this form. The default
// revision is main.
func ParseHubName(text string) (HubName, bool) {
	parts := hubName.FindStringSubmatch(text)
	if parts == nil || strings.Contains(parts[1], "--") || strings.Contains(text, "..") {
		return HubName{}, false
	}
	return HubName{parts[1], cmp.Or(parts[2], "main")}, true
}

// String returns org/name@revision, without the revision main.
func (n HubName) String() string {
	if n.Revision == "main" {
		return n.Repository
	}
	return n.Repository + "@" + n.Revision
}

// folder returns the folder of a model in the cache.
func (h *Hub) folder(n HubName) string {
	return filepath.Join(h.Cache, "models--"+strings.ReplaceAll(n.Repository, "/", "--"))
}

var commitText = regexp.MustCompile(`^[0-9a-f]{40}$`)

// Find returns the folder of a model's revision in the cache, and reports whether it has
// config.json and its weights.
func (h *Hub) Find(n HubName) (dir string, has bool) {
	commit := n.Revision
	if !commitText.MatchString(commit) {
		text, err := infile.ReadBounded(filepath.Join(h.folder(n), "refs", filepath.FromSlash(n.Revision)), 128)
		if commit = strings.TrimSpace(string(text)); err != nil || !commitText.MatchString(commit) {
			return "", false
		}
	}
	dir = filepath.Join(h.folder(n), "snapshots", commit)
	return dir, isWhole(dir)
}

// isWhole reports whether a folder has config.json and all its weights.
func isWhole(dir string) bool {
	has := func(name string) bool {
		_, err := os.Stat(filepath.Join(dir, filepath.FromSlash(name)))
		return err == nil
	}
	if !has("config.json") {
		return false
	}
	if has(weightsName) {
		return true
	}
	shards, err := readShards(filepath.Join(dir, indexName))
	return err == nil && !slices.ContainsFunc(shards, func(name string) bool { return !has(name) })
}

// Fetch downloads the missing files of a model's revision, and returns its folder. It returns an
// error if the hub has no such model or refuses it, if a file cannot be verified, or if ctx ends.
// With IsOffline it returns an error unless Find has the folder.
func (h *Hub) Fetch(ctx context.Context, n HubName) (dir string, err error) {
	defer func() {
		if err != nil {
			err = fmt.Errorf("model %s: %w", n, err)
		}
	}()
	if h.IsOffline {
		if dir, has := h.Find(n); has {
			return dir, nil
		}
		return "", fmt.Errorf("is not in %s, and fetching is off (--offline or HF_HUB_OFFLINE)", h.folder(n))
	}
	limits := h.Limits.withDefaults()
	client := h.Client
	if client == nil {
		client = limits.newClient()
		defer client.CloseIdleConnections()
	}
	x := &hubFetch{Hub: h, name: n, client: client, limits: limits}
	commit, files, err := x.list(ctx)
	if err != nil {
		return "", err
	}
	locks := filepath.Join(h.Cache, ".locks", filepath.Base(h.folder(n)))
	if err := atomicfile.MakeFolder(locks); err != nil {
		return "", err
	}
	owned, err := lock.WaitFolder(ctx, locks, func(held *lock.HeldError) {
		if h.OnWait != nil {
			h.OnWait(held.PID)
		}
	})
	if err != nil {
		return "", err
	}
	defer owned.Release()
	dir = filepath.Join(h.folder(n), "snapshots", commit)
	chosen, err := chooseFiles(files)
	if err != nil {
		return "", err
	}
	for i := 0; i < len(chosen); i++ { // an index adds its files
		name := chosen[i]
		if err := x.file(ctx, dir, commit, name); err != nil {
			return "", fmt.Errorf("%s: %w", name, err)
		}
		if name == indexName {
			shards, err := readShards(filepath.Join(dir, indexName))
			if err != nil {
				return "", fmt.Errorf("%s: %w", name, err)
			}
			for _, shard := range shards {
				if slices.Contains(files, shard) { // a missing one is told where the folder is opened
					chosen = append(chosen, shard)
				}
			}
		}
	}
	if n.Revision != commit {
		ref := filepath.Join(h.folder(n), "refs", filepath.FromSlash(n.Revision))
		if err := atomicfile.MakeFolder(filepath.Dir(ref)); err != nil {
			return "", err
		}
		return dir, atomicfile.WriteBytes(ref, []byte(commit))
	}
	return dir, nil
}

// Names of weights.
const (
	weightsName = "model.safetensors"
	indexName   = "model.safetensors.index.json"
)

// readShards returns the files of an index of weights.
func readShards(path string) (files []string, err error) {
	var index struct {
		Map map[string]string `json:"weight_map"`
	}
	if err := infile.ReadJSON(path, maxHubIndex, &index); err != nil {
		return nil, err
	}
	seen := map[string]bool{}
	for _, name := range index.Map {
		if !filepath.IsLocal(name) || filepath.Base(name) != name || strings.Contains(name, `\`) {
			return nil, fmt.Errorf("weight_map: %q is no name of a file in the folder", infile.Shorten(name))
		}
		if !seen[name] {
			seen[name] = true
			files = append(files, name)
		}
	}
	slices.Sort(files)
	return files, nil
}

// sideFiles are the files that are read beside weights.
var sideFiles = strings.Fields(`config.json generation_config.json tokenizer.json tokenizer_config.json special_tokens_map.json added_tokens.json
	vocab.txt vocab.json merges.txt chat_template.jinja preprocessor_config.json modules.json config_sentence_transformers.json adapter_config.json`)

// pieceFiles are tokenizers that are read without tokenizer.json.
var pieceFiles = strings.Fields("tokenizer.model spiece.model sentencepiece.bpe.model")

// moduleFile matches files of the modules of sentence-transformers.
var moduleFile = regexp.MustCompile(`^(?:[0-9]+_[A-Za-z]+(?:_[0-9]+)?/(?:config\.json|model\.safetensors)|sentence_[a-z-]+_config\.json)$`)

// chooseFiles returns the files that are needed of those that there are. It returns an error if
// config.json or weights that are read are not among them.
func chooseFiles(files []string) (chosen []string, err error) {
	has := func(name string) bool { return slices.Contains(files, name) }
	if !has("config.json") {
		return nil, errors.New("has no config.json, so it is no model in the layout of transformers")
	}
	for _, name := range files {
		isPiece := slices.Contains(pieceFiles, name) && !has("tokenizer.json")
		if slices.Contains(sideFiles, name) || isPiece || moduleFile.MatchString(name) {
			chosen = append(chosen, name)
		}
	}
	switch {
	case has(weightsName):
		return append(chosen, weightsName), nil
	case has(indexName):
		return append(chosen, indexName), nil
	}
	return nil, fmt.Errorf("has neither %s nor %s; weights in other formats are not read", weightsName, indexName)
}

// hubFetch is a fetch of a model.
type hubFetch struct {
	*Hub
	name   HubName
	client *http.Client
	limits Limits
}

// request returns a request to the hub, with the token.
func (x *hubFetch) request(ctx context.Context, method, address string) (*http.Request, error) {
	r, err := http.NewRequestWithContext(ctx, method, address, nil)
	if err != nil {
		return nil, err
	}
	r.Header.Set("User-Agent", "farfield")
	if x.Token != "" {
		r.Header.Set("Authorization", "Bearer "+x.Token) // net/http leaves it out where a redirect names another host
	}
	return r, nil
}

// refusal returns the error of an answer that gives nothing.
func (x *hubFetch) refusal(r *http.Response) error {
	switch r.StatusCode {
	case http.StatusUnauthorized, http.StatusForbidden:
		if x.Token == "" {
			return fmt.Errorf("%s answers %s: there is no such model, or it needs HF_TOKEN", x.Endpoint, r.Status)
		}
		return fmt.Errorf("%s answers %s: the token of HF_TOKEN has no access, or there is no such model", x.Endpoint, r.Status)
	case http.StatusNotFound:
		return fmt.Errorf("%s answers %s: there is no such model, revision or file", x.Endpoint, r.Status)
	}
	return fmt.Errorf("%s answers %s", x.Endpoint, r.Status)
}

// list returns the commit of the revision and the names of its files.
func (x *hubFetch) list(ctx context.Context) (commit string, files []string, err error) {
	r, err := x.request(ctx, http.MethodGet, x.Endpoint+"/api/models/"+x.name.Repository+"/revision/"+url.PathEscape(x.name.Revision))
	if err != nil {
		return "", nil, err
	}
	answer, err := x.client.Do(r)
	if err != nil {
		return "", nil, fmt.Errorf("%w: %w", ErrOffline, err)
	}
	defer answer.Body.Close()
	if answer.StatusCode != http.StatusOK {
		return "", nil, x.refusal(answer)
	}
	text, err := io.ReadAll(io.LimitReader(answer.Body, maxListing+1))
	if err == nil && len(text) > maxListing {
		err = fmt.Errorf("has more than %d bytes", maxListing)
	}
	var listing struct {
		SHA      string
		Siblings []struct{ RFilename string }
	}
	if err == nil {
		err = json.Unmarshal(text, &listing)
	}
	switch {
	case err != nil:
		return "", nil, fmt.Errorf("the list of files: %w", err)
	case !commitText.MatchString(listing.SHA):
		return "", nil, fmt.Errorf("the list of files: sha is %q, a commit is needed", infile.Shorten(listing.SHA))
	case len(listing.Siblings) > maxHubFiles:
		return "", nil, fmt.Errorf("the list of files: has %d, at most %d are read", len(listing.Siblings), maxHubFiles)
	}
	for _, s := range listing.Siblings {
		if filepath.IsLocal(s.RFilename) && path.Clean(s.RFilename) == s.RFilename && !strings.Contains(s.RFilename, `\`) {
			files = append(files, s.RFilename)
		}
	}
	return listing.SHA, files, nil
}

// blob describes a file on the hub.
type blob struct {
	etag string // SHA-256, or the id of git
	size int64
}

var blobText = regexp.MustCompile(`^(?:[0-9a-f]{40}|[0-9a-f]{64})$`)

// describe returns checksum and size of a file. Redirects of the hub to itself are followed; one to
// another host has them in its header.
func (x *hubFetch) describe(ctx context.Context, address string) (*blob, error) {
	client := *x.client
	client.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	for range maxRedirects {
		r, err := x.request(ctx, http.MethodHead, address)
		if err != nil {
			return nil, err
		}
		answer, err := client.Do(r)
		if err != nil {
			return nil, err
		}
		answer.Body.Close()
		etag := cmp.Or(answer.Header.Get("X-Linked-Etag"), answer.Header.Get("Etag"))
		etag = strings.Trim(strings.TrimPrefix(etag, "W/"), `"`)
		isRedirect := answer.StatusCode >= 300 && answer.StatusCode < 400
		if !isRedirect && answer.StatusCode != http.StatusOK {
			return nil, x.refusal(answer)
		}
		if isRedirect && answer.Header.Get("X-Linked-Etag") == "" {
			to, err := answer.Location()
			if err != nil || to.Host != r.URL.Host {
				return nil, fmt.Errorf("%s leads to another host without a checksum", infile.Shorten(address))
			}
			address = to.String()
			continue
		}
		if !blobText.MatchString(etag) {
			return nil, fmt.Errorf("the checksum is %q, an id of git or a SHA-256 is needed", infile.Shorten(etag))
		}
		size, err := strconv.ParseInt(cmp.Or(answer.Header.Get("X-Linked-Size"), answer.Header.Get("Content-Length")), 10, 64)
		if err != nil || size < 0 || size > sizeLimit {
			return nil, fmt.Errorf("the size is %q, needs to be from 0 to %d", infile.Shorten(answer.Header.Get("X-Linked-Size")), int64(sizeLimit))
		}
		return &blob{etag, size}, nil
	}
	return nil, fmt.Errorf("has more than %d redirects", maxRedirects)
}

// file puts a file of a commit into its snapshot, unless it is there.
func (x *hubFetch) file(ctx context.Context, snapshot, commit, name string) error {
	to := filepath.Join(snapshot, filepath.FromSlash(name))
	if _, err := os.Stat(to); err == nil {
		return nil // of a commit, which does not change
	}
	var escaped []string
	for part := range strings.SplitSeq(name, "/") {
		escaped = append(escaped, url.PathEscape(part))
	}
	address := x.Endpoint + "/" + x.name.Repository + "/resolve/" + commit + "/" + strings.Join(escaped, "/")
	b, err := x.describe(ctx, address)
	if err != nil {
		return err
	}
	blobs := filepath.Join(x.folder(x.name), "blobs")
	if err := atomicfile.MakeFolder(blobs); err != nil {
		return err
	}
	at := filepath.Join(blobs, b.etag)
	if info, err := os.Stat(at); err != nil || info.Size() != b.size {
		if err := x.download(ctx, address, name, at, b); err != nil {
			return err
		}
	}
	if err := atomicfile.MakeFolder(filepath.Dir(to)); err != nil {
		return err
	}
	link, err := filepath.Rel(filepath.Dir(to), at)
	if err != nil {
		return err
	}
	os.Remove(to) // a link whose blob is lost
	if err := os.Symlink(link, to); err == nil || errors.Is(err, fs.ErrExist) {
		return nil
	}
	in, err := infile.Open(at) // a system without links
	if err != nil {
		return err
	}
	defer in.Close()
	return atomicfile.Write(to, func(w io.Writer) error {
		_, err := io.Copy(w, &contextReader{ctx, in})
		return err
	})
}

// download fetches the bytes of a blob to a file, from where an earlier download ended, and verifies
// them.
func (x *hubFetch) download(ctx context.Context, address, name, to string, b *blob) error {
	part := to + ".incomplete"
	for resumes := 0; ; resumes++ {
		before := fileSize(part)
		err := x.downloadPart(ctx, address, name, part, b)
		if err == nil {
			break
		}
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if fileSize(part) <= before || resumes == maxResumes {
			return err
		}
	}
	if err := b.verify(ctx, part); err != nil {
		return errors.Join(err, os.Remove(part))
	}
	return atomicfile.Replace(part, to)
}

// fileSize returns the bytes of a file; 0 without it.
func fileSize(path string) int64 {
	info, err := os.Stat(path)
	if err != nil {
		return 0
	}
	return info.Size()
}

// downloadPart adds the bytes that a file lacks.
func (x *hubFetch) downloadPart(ctx context.Context, address, name, part string, b *blob) (err error) {
	have := fileSize(part)
	if have > b.size {
		have = 0
	}
	if have == b.size && have > 0 {
		return nil
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	r, err := x.request(ctx, http.MethodGet, address)
	if err != nil {
		return err
	}
	if have > 0 {
		r.Header.Set("Range", fmt.Sprintf("bytes=%d-", have))
	}
	answer, err := x.client.Do(r)
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	switch {
	case answer.StatusCode == http.StatusOK:
		have = 0
	case have > 0 && answer.StatusCode == http.StatusPartialContent && strings.HasPrefix(answer.Header.Get("Content-Range"), fmt.Sprintf("bytes %d-", have)):
	default:
		return x.refusal(answer)
	}
	f, err := os.OpenFile(part, os.O_WRONLY|os.O_CREATE, 0o644)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	if err := f.Truncate(have); err != nil {
		return err
	}
	if _, err := f.Seek(have, io.SeekStart); err != nil {
		return err
	}
	var got atomic.Int64
	go x.limits.cancelSlow(ctx, cancel, &got)
	buffer := make([]byte, 1<<16)
	var shown time.Time
	for {
		n, err := answer.Body.Read(buffer)
		if have += int64(n); have > b.size {
			return fmt.Errorf("has more than the %d bytes of its description", b.size)
		}
		if _, err := f.Write(buffer[:n]); err != nil {
			return err
		}
		got.Add(int64(n))
		if x.Progress != nil && (time.Since(shown) > time.Second/10 || err != nil) {
			shown = time.Now()
			x.Progress(name, have, b.size)
		}
		switch {
		case errors.Is(err, io.EOF) && have == b.size:
			return f.Sync()
		case errors.Is(err, io.EOF):
			return fmt.Errorf("ends after %d of %d bytes", have, b.size)
		case err != nil:
			return cmp.Or(context.Cause(ctx), err)
		}
	}
}

// verify returns an error unless a file has the checksum of the blob.
func (b *blob) verify(ctx context.Context, path string) error {
	f, err := infile.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	var sum hash.Hash
	kind := "SHA-256"
	if len(b.etag) == 64 {
		sum = sha256.New()
	} else { // of git, for small files
		kind, sum = "id of git", sha1.New()
		fmt.Fprintf(sum, "blob %d\x00", b.size)
	}
	if _, err := io.Copy(sum, &contextReader{ctx, f}); err != nil {
		return err
	}
	if have := hex.EncodeToString(sum.Sum(nil)); have != b.etag {
		return fmt.Errorf("the %s is %s, the hub says %s; the download is removed", kind, have, b.etag)
	}
	return nil
}
