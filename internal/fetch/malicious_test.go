package fetch

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/farfield-ml/farfield/internal/check"
)

// answers serves one fixed answer, header and body, to each connection and closes it.
func answers(t *testing.T, answer string) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				// The whole request is read first: closing before resets the connection.
				if _, err := http.ReadRequest(bufio.NewReader(c)); err == nil {
					_, _ = io.WriteString(c, answer)
				}
			}()
		}
	}()
	return "http://" + l.Addr().String()
}

func TestAnswersThatProveNothingAreRefused(t *testing.T) {
	t.Parallel()
	b := content(100)
	const whole = "HTTP/1.1 200 OK\r\nContent-Length: 100\r\n"
	for _, c := range []struct{ name, answer, want string }{
		{"empty", "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n", "the answer is empty"},
		{"empty in chunks", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", "the answer is empty"},
		{"HTTP/1.0 without a length", "HTTP/1.0 200 OK\r\n\r\n" + string(b[:50]), "the answer has no length, and no checksum is known"},
		{"HTTP/1.1 until it closes", "HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n" + string(b[:50]), "the answer has no length, and no checksum is known"},
		{"HTTP/1.0 cut", "HTTP/1.0 200 OK\r\nContent-Length: 100\r\n\r\n" + string(b[:50]), "unexpected EOF"},
		{"cut", whole + "\r\n" + string(b[:50]), "unexpected EOF"},
		{"chunks cut", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n32\r\n" + string(b[:50]) + "\r\n", "unexpected EOF"},
		{"part of what was not asked in parts", "HTTP/1.1 206 Partial Content\r\nContent-Range: bytes 0-49/100\r\nContent-Length: 50\r\n\r\n" + string(b[:50]), "the server answers 206"},
	} {
		t.Run(c.name, func(t *testing.T) {
			dir := t.TempDir()
			set := one(File{Name: "x.bin", URLs: []string{answers(t, c.answer)}})
			refused(t, set.Fetch(t.Context(), Options{Folder: dir}), c.want)
			if st := set.State(dir); st.Complete {
				t.Errorf("files %s", names(t, filepath.Join(dir, "set")))
			}
		})
	}
	for _, f := range []File{{Size: 100}, {SHA256: hex256(b)}} {
		dir := t.TempDir()
		f.Name, f.URLs = "x.bin", []string{answers(t, "HTTP/1.0 200 OK\r\n\r\n"+string(b[:50]))}
		if err := one(f).Fetch(t.Context(), Options{Folder: dir}); err == nil || one(f).State(dir).Complete {
			t.Errorf("half of a known file is taken: %v", err)
		}
		dir = t.TempDir()
		f.URLs = []string{answers(t, "HTTP/1.0 200 OK\r\n\r\n"+string(b))}
		if err := one(f).Fetch(t.Context(), Options{Folder: dir}); err != nil {
			t.Errorf("a known file without a length: %v", err)
		}
	}
}

// A server gives half of one version, then another version to every request.
func TestPartsOfTwoVersionsAreNotJoined(t *testing.T) {
	t.Parallel()
	old, b := bytes.Repeat([]byte("old "), 25), bytes.Repeat([]byte("new."), 25)
	const past = "Mon, 01 Jan 2024 00:00:00 GMT"
	for _, c := range []struct {
		name          string
		before, after http.Header // of the first answer, and of those to If-Range
		total         int
		again         bool // the rest is asked for in vain
	}{
		{"If-Range ignored", http.Header{"Etag": {`"1"`}}, http.Header{"Etag": {`"2"`}}, 100, true},
		{"tag no more", http.Header{"Etag": {`"1"`}}, http.Header{}, 100, true},
		{"Last-Modified alone", http.Header{"Last-Modified": {past}}, http.Header{"Last-Modified": {"Tue, 02 Jan 2024 00:00:00 GMT"}}, 100, true},
		{"another length", http.Header{"Etag": {`"1"`}}, http.Header{"Etag": {`"1"`}}, 101, true},
		{"weak tag", http.Header{"Etag": {`W/"1"`}}, http.Header{"Etag": {`W/"1"`}}, 100, false},
		{"no validator", http.Header{}, http.Header{}, 100, false},
		{"modified just now", http.Header{"Last-Modified": {time.Now().UTC().Format(http.TimeFormat)}}, http.Header{}, 100, false},
	} {
		for _, sum := range []string{"", hex256(b)} {
			if sum != "" && c.name != "If-Range ignored" && c.name != "another length" {
				continue // the checksum proves it at the end
			}
			var asked []string
			s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				asked = append(asked, r.Header.Get("Range"))
				header := c.after
				switch {
				case len(asked) == 1:
					for k, v := range c.before {
						w.Header()[k] = v
					}
					w.Header().Set("Content-Length", "100")
					w.Write(old[:48])
					w.(http.Flusher).Flush()
					panic(http.ErrAbortHandler)
				case r.Header.Get("Range") != "":
					for k, v := range header {
						w.Header()[k] = v
					}
					w.Header().Set("Content-Range", fmt.Sprintf("bytes 48-%d/%d", c.total-1, c.total))
					w.WriteHeader(http.StatusPartialContent)
					w.Write(b[48:])
					w.Write(make([]byte, c.total-100))
				default:
					w.Write(b)
				}
			}))
			dir := t.TempDir()
			set := one(File{Name: "x.bin", URLs: []string{s.URL}, SHA256: sum})
			if err := set.Fetch(t.Context(), Options{Folder: dir}); err == nil {
				t.Errorf("%s: half an answer is taken", c.name)
			}
			if err := set.Fetch(t.Context(), Options{Folder: dir}); err != nil {
				t.Errorf("%s: %v", c.name, err)
			}
			holdsFile(t, filepath.Join(dir, "set", "x.bin"), b)
			want := []string{"", ""}
			if c.again {
				want = []string{"", "bytes=48-", ""}
			}
			if fmt.Sprint(asked) != fmt.Sprint(want) {
				t.Errorf("%s: asked for %q, want %q", c.name, asked, want)
			}
			s.Close()
		}
	}
}

// An answer without total length continues a part of known length.
func TestPartsThatEndEarlyAreNotTaken(t *testing.T) {
	t.Parallel()
	b, asked := content(1000), 0
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("ETag", `"1"`)
		if asked++; asked == 1 {
			w.Header().Set("Content-Length", "1000")
			w.Write(b[:400])
			w.(http.Flusher).Flush()
			panic(http.ErrAbortHandler)
		}
		have := 200 * asked
		end := have + 200
		w.Header().Set("Content-Range", fmt.Sprintf("bytes %d-%d/*", have, end-1))
		w.WriteHeader(http.StatusPartialContent)
		w.Write(b[have:end])
	}))
	defer s.Close()
	set, dir := one(File{Name: "x.bin", URLs: []string{s.URL}}), t.TempDir()
	for _, want := range []string{"unexpected EOF", "it ended after 600 of 1000 bytes", "it ended after 800 of 1000 bytes"} {
		refused(t, set.Fetch(t.Context(), Options{Folder: dir}), want)
	}
	if err := set.Fetch(t.Context(), Options{Folder: dir}); err != nil {
		t.Fatal(err)
	}
	holdsFile(t, filepath.Join(dir, "set", "x.bin"), b)
}

func TestFilesWithoutAddressAreRefused(t *testing.T) {
	t.Parallel()
	set := one(File{Name: "x.bin"})
	refused(t, set.Fetch(t.Context(), Options{Folder: t.TempDir()}), "data set set: x.bin: has no address")
	refused(t, set.Fetch(t.Context(), Options{Folder: t.TempDir(), SourceFolder: t.TempDir()}), "x.bin is not there")
}

// A server that ignores Range sends the complete file.
func TestIgnoredRangeBeginsAnew(t *testing.T) {
	t.Parallel()
	b := content(100_000)
	s := serve(t, b)
	s.cut = 60_000
	dir := t.TempDir()
	set := one(File{Name: "x.bin", URLs: []string{s.URL}, SHA256: hex256(b)})
	refused(t, set.Fetch(t.Context(), Options{Folder: dir}), s.URL)
	whole := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Range") == "" {
			t.Error("no Range is asked for")
		}
		w.Write(b)
	}))
	defer whole.Close()
	set.Files[0].URLs[0] = whole.URL
	if err := set.Fetch(t.Context(), Options{Folder: dir}); err != nil {
		t.Fatal(err)
	}
	holdsFile(t, filepath.Join(dir, "set", "x.bin"), b)
}

func TestWrongContentRangeIsRefused(t *testing.T) {
	t.Parallel()
	b := content(100)
	for _, c := range []struct{ span, want string }{
		{"bytes 40-98/100", "the Content-Range has 59 bytes, the Content-Length is 60"},
		{"bytes 40-99/99", `the Content-Range is "bytes 40-99/99"`},
		{"bytes 0-59/100", "the answer begins at byte 0, 40 was asked for"},
	} {
		s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Range", c.span)
			w.Header().Set("Content-Length", "60")
			w.WriteHeader(http.StatusPartialContent)
			w.Write(b[40:])
		}))
		dir := t.TempDir()
		part := filepath.Join(dir, "set", "x.bin.part")
		if err := os.Mkdir(filepath.Dir(part), 0o777); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(part, b[:40], 0o666); err != nil {
			t.Fatal(err)
		}
		set := one(File{Name: "x.bin", URLs: []string{s.URL}, SHA256: hex256(b)})
		refused(t, set.Fetch(t.Context(), Options{Folder: dir}), c.want)
		s.Close()
	}
}

// Occasional bytes do not keep a download alive.
func TestSlowServersAreGivenUp(t *testing.T) {
	t.Parallel()
	done := make(chan struct{})
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Length", "1000000")
		tick := time.NewTicker(time.Millisecond)
		defer tick.Stop()
		for {
			if _, err := w.Write([]byte{0}); err != nil {
				return
			}
			w.(http.Flusher).Flush()
			select {
			case <-done:
				return
			case <-tick.C:
			}
		}
	}))
	defer s.Close()
	defer close(done)
	set := one(File{Name: "x.bin", URLs: []string{s.URL}})
	err := set.Fetch(t.Context(), Options{Folder: t.TempDir(), Limits: Limits{Interval: 100 * time.Millisecond, Bytes: 100_000}})
	refused(t, err, "in 100ms") // no byte at all, where this machine is slower
}

func TestSlowStartIsForgiven(t *testing.T) {
	t.Parallel()
	l := Limits{Interval: time.Minute, Bytes: 1000}
	for _, c := range []struct {
		got   int64
		first bool
		ok    bool
	}{{1, true, true}, {0, true, false}, {999, false, false}, {1000, false, true}, {0, false, false}} {
		if err := l.checkInterval(c.got, c.first); (err == nil) != c.ok {
			t.Errorf("%d bytes, first %v: %v", c.got, c.first, err)
		}
	}
	if got := (Limits{TLS: 1}).withDefaults(); got.TLS != 1 || got.Connect != DefaultLimits.Connect || got.Bytes != DefaultLimits.Bytes {
		t.Errorf("limits are %+v", got)
	}
}

func TestSilentServersAreGivenUp(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0") // takes connections and says nothing
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	short := Limits{TLS: 20 * time.Millisecond, Header: 20 * time.Millisecond}
	for _, c := range []struct {
		url, want string
		client    *http.Client
	}{
		{"http://", "timeout awaiting response headers", nil},
		{"https://", "TLS handshake timeout", nil},
		{"http://", "no answer in", &http.Client{}},
	} {
		limits := short
		if c.client != nil {
			limits.Connect = 20 * time.Millisecond
		}
		set := one(File{Name: "x.bin", URLs: []string{c.url + l.Addr().String()}})
		refused(t, set.Fetch(t.Context(), Options{Folder: t.TempDir(), Limits: limits, Client: c.client}), c.want)
	}
}

// The second of two fetches waits for the first and sends no request.
func TestTwoAtOnceFetchOnce(t *testing.T) {
	t.Parallel()
	b := content(1000)
	waits := make(chan struct{})
	var requests atomic.Int32
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		requests.Add(1)
		<-waits
		w.Write(b)
	}))
	defer s.Close()
	set, dir := one(File{Name: "x.bin", URLs: []string{s.URL}}), t.TempDir()
	var all sync.WaitGroup
	var once sync.Once
	for range 2 {
		all.Go(func() {
			err := set.Fetch(t.Context(), Options{Folder: dir, OnWait: func(process int) {
				if process != os.Getpid() && process != 0 { // 0: it is not written yet
					t.Errorf("waits for process %d, this is %d", process, os.Getpid())
				}
				once.Do(func() { close(waits) })
			}})
			if err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	if n := requests.Load(); n != 1 {
		t.Errorf("%d requests", n)
	}
	holdsFile(t, filepath.Join(dir, "set", "x.bin"), b)
	if got := names(t, filepath.Join(dir, "set")); got != "fetched.json x.bin" {
		t.Errorf("files %s", got)
	}
}

func TestWaitForAnotherFetchIsInterrupted(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	asked, release := make(chan struct{}), make(chan struct{})
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		close(asked)
		<-release
		w.Write([]byte("x"))
	}))
	defer s.Close()
	set, dir := one(File{Name: "x.bin", URLs: []string{s.URL}}), t.TempDir()
	first := make(chan error)
	go func() { first <- set.Fetch(context.Background(), Options{Folder: dir}) }()
	<-asked
	err := set.Fetch(ctx, Options{Folder: dir, OnWait: func(int) { cancel() }})
	if !errors.Is(err, context.Canceled) {
		t.Errorf("the wait ends with %v", err)
	}
	close(release)
	if err := <-first; err != nil {
		t.Error(err)
	}
}

// countdown is a context that ends after a number of calls of Err.
type countdown struct {
	context.Context
	left atomic.Int32
}

func (c *countdown) Err() error {
	if c.left.Add(-1) < 0 {
		return context.Canceled
	}
	return nil
}

func TestSkippingThroughAnArchiveIsInterrupted(t *testing.T) {
	t.Parallel()
	noise := make([]byte, 1<<20)
	for i := range noise {
		noise[i] = byte(rand.Uint32())
	}
	a := &Archive{Members: []Member{{Path: "a", Name: "a", Size: 3}}}
	imdb, err := Lookup("imdb")
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name    string
		archive *Archive
		content []byte
	}{
		{"tar", a, tarOf(t, "other", string(noise), "a", "abc")},
		{"reviews", imdb.Files[0].Unpack, tarOf(t, "aclImdb/other", string(noise))},
	} {
		path := filepath.Join(t.TempDir(), "x")
		if err := os.WriteFile(path, c.content, 0o666); err != nil {
			t.Fatal(err)
		}
		ctx := &countdown{Context: context.Background()}
		ctx.left.Store(3)
		if err := c.archive.unpackMembers(ctx, path, t.TempDir()); err == nil || ctx.left.Load() >= 0 {
			t.Errorf("%s: %v, before the context ended", c.name, err)
		}
	}
}

// Leftovers of the set's downloads are removed, other files stay.
func TestLeftoversOfDownloadsAreRemoved(t *testing.T) {
	t.Parallel()
	b := content(100)
	s := serve(t, b)
	set, dir := one(File{Name: "x.bin", URLs: []string{s.URL}, SHA256: hex256(b)}), t.TempDir()
	in := filepath.Join(dir, "set")
	if err := os.Mkdir(in, 0o777); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"x.bin.part", "x.bin.part.json", "x.bin.part.etag", "y.bin.part"} {
		if err := os.WriteFile(filepath.Join(in, name), []byte("left"), 0o666); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(in, "x.bin"), b, 0o666); err != nil {
		t.Fatal(err)
	}
	if err := set.Fetch(t.Context(), Options{Folder: dir}); err != nil || len(s.ranges) != 0 {
		t.Errorf("%d requests, %v", len(s.ranges), err)
	}
	if got := names(t, in); got != "x.bin y.bin.part" {
		t.Errorf("files %s", got)
	}
}

// A file without published checksum is verified by its digest at the time of the fetch.
func TestFilesWithoutChecksumAreNoted(t *testing.T) {
	t.Parallel()
	b := content(100)
	s := serve(t, b)
	set, dir := one(File{Name: "x.bin", URLs: []string{s.URL}}), t.TempDir()
	fetch := func() {
		t.Helper()
		if err := set.Fetch(t.Context(), Options{Folder: dir}); err != nil {
			t.Fatal(err)
		}
	}
	fetch()
	if got := set.VerificationIn(dir); !strings.Contains(got, "no published checksum known; complete by its length and ETag") {
		t.Errorf("proof is %q", got)
	}
	path := filepath.Join(dir, "set", "x.bin")
	for _, damaged := range [][]byte{b[:99], append([]byte{1}, b[1:]...)} {
		if err := os.WriteFile(path, damaged, 0o666); err != nil {
			t.Fatal(err)
		}
		refused(t, set.Verify(t.Context(), dir), "when it was fetched")
		fetch()
		holdsFile(t, path, b)
	}
	note := filepath.Join(dir, "set", "fetched.json")
	if err := os.WriteFile(note, []byte(`{"format": "farfield fetched files", "version": 2}`), 0o666); err != nil {
		t.Fatal(err)
	}
	refused(t, set.Verify(t.Context(), dir), note+": version is 2, this program reads 1")
	refused(t, set.Fetch(t.Context(), Options{Folder: dir}), note+": version is 2")
}

// A malformed archive without published checksum is fetched anew.
func TestBrokenArchiveIsNotKept(t *testing.T) {
	t.Parallel()
	s := serve(t, []byte("not an archive"))
	set, dir := one(File{Name: "x", URLs: []string{s.URL}, Unpack: &Archive{Members: []Member{{Path: "a", Name: "a", Size: 3}}}}), t.TempDir()
	refused(t, set.Fetch(t.Context(), Options{Folder: dir}), "what was fetched is removed", "gzip: invalid header")
	s.content, s.tag = tarOf(t, "a", "abc"), `"two"`
	if err := set.Fetch(t.Context(), Options{Folder: dir}); err != nil {
		t.Fatal(err)
	}
	holdsFile(t, filepath.Join(dir, "set", "a"), []byte("abc"))
}

// Any bytes are read as observations, or refused.
func FuzzObserved(f *testing.F) {
	f.Add([]byte(`{"format": "farfield fetched files", "version": 1, "files": {"x": {"bytes": 3, "sha256": "00", "complete_by": "its length"}}}`))
	f.Add([]byte(`{"format": "farfield fetched files", "version": 1, "files": null}`))
	f.Add([]byte(`[]`))
	f.Fuzz(func(t *testing.T, b []byte) {
		n := check.AllocatedBytes(func() {
			if o, err := parseObserved(b); err == nil && o == nil {
				t.Error("neither an error nor an observation")
			}
		})
		if n > 64<<10+64*int64(len(b)) {
			t.Errorf("%d bytes are read in %d bytes of memory", len(b), n)
		}
	})
}
