package fetch

import (
	"archive/tar"
	"archive/zip"
	"bytes"
	"compress/gzip"
	"context"
	"crypto/md5"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/farfield-ml/farfield/internal/check"
	"github.com/farfield-ml/farfield/internal/lock"
)

func hex256(b []byte) string { s := sha256.Sum256(b); return hex.EncodeToString(s[:]) }
func hexMD5(b []byte) string { s := md5.Sum(b); return hex.EncodeToString(s[:]) }

// server serves content with a tag and records the requested ranges.
type server struct {
	*httptest.Server
	content []byte
	tag     string
	ranges  []string
	cut     int // bytes after which the connection breaks; 0: none
}

func serve(t *testing.T, content []byte) *server {
	s := &server{content: content, tag: `"one"`}
	s.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.ranges = append(s.ranges, r.Header.Get("Range"))
		w.Header().Set("ETag", s.tag)
		if s.cut > 0 {
			w = &cutting{w, s.cut}
			defer func() {
				if recover() != nil {
					panic(http.ErrAbortHandler)
				}
			}()
		}
		http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(s.content))
	}))
	t.Cleanup(s.Close)
	return s
}

type cutting struct {
	http.ResponseWriter
	left int
}

func (c *cutting) Write(p []byte) (int, error) {
	if len(p) > c.left {
		n, _ := c.ResponseWriter.Write(p[:c.left])
		c.ResponseWriter.(http.Flusher).Flush()
		_ = n
		panic("cut")
	}
	c.left -= len(p)
	return c.ResponseWriter.Write(p)
}

func content(n int) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(i * i >> 3)
	}
	return b
}

// one returns a set of one file.
func one(f File) *Set { return &Set{Name: "set", Files: []File{f}} }

func holdsFile(t *testing.T, path string, want []byte) {
	t.Helper()
	got, err := os.ReadFile(path)
	if err != nil || !bytes.Equal(got, want) {
		t.Errorf("%s: %d bytes, want %d; %v", path, len(got), len(want), err)
	}
}

// names lists a folder.
func names(t *testing.T, dir string) string {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	var list []string
	for _, e := range entries {
		list = append(list, e.Name())
	}
	return strings.Join(list, " ")
}

func refused(t *testing.T, err error, want ...string) {
	t.Helper()
	if err == nil {
		t.Fatalf("no error, want %q", want)
	}
	for _, w := range want {
		if !strings.Contains(err.Error(), w) {
			t.Errorf("error is %v, want %q", err, w)
		}
	}
}

func TestFetchDownloadsOnceAndVerifies(t *testing.T) {
	t.Parallel()
	b := content(100_000)
	s := serve(t, b)
	set := one(File{Name: "x.bin", URLs: []string{s.URL}, Size: int64(len(b)), SHA256: hex256(b)})
	dir := t.TempDir()
	var last, total int64
	o := Options{Folder: dir, Progress: func(name string, done, all int64) { last, total = done, all }}
	if st := set.State(dir); st.IsReady() {
		t.Error("it is there before it is fetched")
	}
	for range 2 { // the second time there is nothing to do
		if err := set.Fetch(context.Background(), o); err != nil {
			t.Fatal(err)
		}
	}
	holdsFile(t, filepath.Join(dir, "set", "x.bin"), b)
	if last != 100_000 || total != 100_000 || len(s.ranges) != 1 || names(t, filepath.Join(dir, "set")) != "x.bin" || !set.State(dir).Complete {
		t.Errorf("%d of %d bytes, ranges %q, files %s", last, total, s.ranges, names(t, filepath.Join(dir, "set")))
	}
	// A file that was damaged is fetched again.
	if err := os.WriteFile(filepath.Join(dir, "set", "x.bin"), content(100_000)[1:], 0o666); err != nil {
		t.Fatal(err)
	}
	refused(t, set.Verify(t.Context(), dir), "x.bin: it has 99999 bytes, 100000 are known")
	if err := set.Fetch(context.Background(), o); err != nil {
		t.Fatal(err)
	}
	holdsFile(t, filepath.Join(dir, "set", "x.bin"), b)
}

func TestInterruptedFetchContinues(t *testing.T) {
	t.Parallel()
	b := content(300_000)
	for name, f := range map[string]File{
		"checksum":   {Size: int64(len(b)), SHA256: hex256(b)},
		"tag alone":  {},
		"size alone": {Size: int64(len(b))},
	} {
		t.Run(name, func(t *testing.T) {
			s := serve(t, b)
			s.cut = 120_000
			f.Name, f.URLs = "x.bin", []string{s.URL}
			set, dir := one(f), t.TempDir()
			refused(t, set.Fetch(context.Background(), Options{Folder: dir}), "set", s.URL)
			st := set.State(dir)
			if st.IsReady() || st.PartialBytes == 0 || st.PartialBytes > 120_000 {
				t.Errorf("after the break: %+v", st)
			}
			s.cut = 0
			if err := set.Fetch(context.Background(), Options{Folder: dir}); err != nil {
				t.Fatal(err)
			}
			if want := fmt.Sprintf("bytes=%d-", st.PartialBytes); s.ranges[1] != want {
				t.Errorf("asked for %q, want %q", s.ranges[1], want)
			}
			holdsFile(t, filepath.Join(dir, "set", "x.bin"), b)
			want := "x.bin"
			if f.SHA256 == "" {
				want = "fetched.json x.bin"
			}
			if got := names(t, filepath.Join(dir, "set")); got != want {
				t.Errorf("files %s, want %s", got, want)
			}
		})
	}
}

// A fetch may be killed after the last byte and before the digest is recorded.
func TestFetchKilledBeforeItsDigestIsNotedIsRepeated(t *testing.T) {
	t.Parallel()
	b := content(100_000)
	s := serve(t, b)
	set, dir := one(File{Name: "x.bin", URLs: []string{s.URL}}), t.TempDir()
	note := filepath.Join(dir, "set", observedFile)
	fetch := func() []byte {
		t.Helper()
		if err := set.Fetch(t.Context(), Options{Folder: dir}); err != nil {
			t.Fatal(err)
		}
		text, err := os.ReadFile(note)
		if err != nil {
			t.Fatal(err)
		}
		return text
	}
	want := fetch()
	if err := writeObserved(filepath.Dir(note), observations{"x.bin": {}}); err != nil {
		t.Fatal(err)
	}
	refused(t, set.Verify(t.Context(), dir), "x.bin: its fetch did not end")
	if how := set.VerificationIn(dir); strings.Contains(how, "complete by") {
		t.Errorf("an interrupted fetch is proved by %q", how)
	}
	if got := fetch(); !bytes.Equal(got, want) {
		t.Errorf("the note is %s, want %s", got, want)
	}
	if len(s.ranges) != 2 {
		t.Errorf("%d requests, want 2", len(s.ranges))
	}
}

// The fetch is interrupted while its results are hashed.
func TestFetchInterruptedInItsDigestIsRepeated(t *testing.T) {
	t.Parallel()
	s, dir := serve(t, content(100)), t.TempDir()
	ctx, cancel := context.WithCancel(t.Context())
	set := one(File{Name: "x", URLs: []string{s.URL}, Unpack: &Archive{Members: []Member{{Name: "a"}}, convert: func(_ context.Context, _, folder string) error {
		cancel()
		return os.WriteFile(filepath.Join(folder, "a"), []byte("abc"), 0o666)
	}}})
	if err := set.Fetch(ctx, Options{Folder: dir}); !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
	refused(t, set.Verify(t.Context(), dir), "a: its fetch did not end")
	if err := set.Fetch(t.Context(), Options{Folder: dir}); err != nil {
		t.Fatal(err)
	}
	if got := set.VerificationIn(dir); !strings.Contains(got, "unchanged by its SHA-256") {
		t.Errorf("verified: %s", got)
	}
}

func TestPartOfAnotherVersionIsDiscarded(t *testing.T) {
	t.Parallel()
	s := serve(t, content(300_000))
	s.cut = 100_000
	set, dir := one(File{Name: "x.bin", URLs: []string{s.URL}}), t.TempDir()
	refused(t, set.Fetch(context.Background(), Options{Folder: dir}), s.URL)
	b := bytes.Repeat([]byte("new "), 50_000)
	s.content, s.tag, s.cut = b, `"two"`, 0
	if err := set.Fetch(context.Background(), Options{Folder: dir}); err != nil {
		t.Fatal(err)
	}
	holdsFile(t, filepath.Join(dir, "set", "x.bin"), b)

	// Without a tag and without a checksum it begins anew.
	if err := os.Rename(filepath.Join(dir, "set", "x.bin"), filepath.Join(dir, "set", "x.bin.part")); err != nil {
		t.Fatal(err)
	}
	s.ranges = nil
	if err := set.Fetch(context.Background(), Options{Folder: dir}); err != nil || s.ranges[0] != "" {
		t.Errorf("ranges %q, %v", s.ranges, err)
	}
}

func TestFetchRefusesWrongContent(t *testing.T) {
	t.Parallel()
	b := content(1000)
	s := serve(t, b)
	dead := httptest.NewServer(http.NotFoundHandler())
	t.Cleanup(dead.Close)
	gone := httptest.NewServer(nil)
	gone.Close()
	for _, c := range []struct {
		f    File
		want []string
	}{
		{File{URLs: []string{s.URL}, Size: 999}, []string{"the server has 1000 bytes, 999 are known"}},
		{File{URLs: []string{s.URL}, SHA256: hex256(b[1:])}, []string{"what was fetched is removed", "SHA-256 is " + hex256(b), hex256(b[1:]) + " is known"}},
		{File{URLs: []string{s.URL}, MD5: hexMD5(b[1:])}, []string{"MD5 is " + hexMD5(b)}},
		{File{URLs: []string{dead.URL}}, []string{dead.URL, "404"}},
		{File{URLs: []string{gone.URL, dead.URL}}, []string{"no connection", gone.URL, "404"}},
	} {
		c.f.Name = "x.bin"
		dir := t.TempDir()
		err := one(c.f).Fetch(context.Background(), Options{Folder: dir})
		refused(t, err, append(c.want, "data set set")...)
		if got := names(t, filepath.Join(dir, "set")); got != "" {
			t.Errorf("files %s", got)
		}
	}
	err := one(File{Name: "x", URLs: []string{gone.URL}}).Fetch(context.Background(), Options{Folder: t.TempDir()})
	if !errors.Is(err, ErrOffline) {
		t.Errorf("error is %v", err)
	}
	// The second address is taken where the first fails.
	if err := one(File{Name: "x", URLs: []string{gone.URL, s.URL}, Size: 1000}).Fetch(context.Background(), Options{Folder: t.TempDir()}); err != nil {
		t.Error(err)
	}
	refused(t, (&Set{Name: "own"}).Fetch(context.Background(), Options{Folder: t.TempDir()}), "own: there is nothing to fetch")
}

func TestFetchStopsWithItsContext(t *testing.T) {
	t.Parallel()
	hang := make(chan struct{})
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Length", "1000")
		w.Write(content(100))
		w.(http.Flusher).Flush()
		<-hang
	}))
	defer s.Close()
	defer close(hang)
	set, dir := one(File{Name: "x.bin", URLs: []string{s.URL}, SHA256: "00"}), t.TempDir()
	err := set.Fetch(context.Background(), Options{Folder: dir, Limits: Limits{Interval: 50 * time.Millisecond}})
	refused(t, err, "no byte in 50ms")
	ctx, cancel := context.WithCancel(context.Background())
	err = set.Fetch(ctx, Options{Folder: dir, Progress: func(string, int64, int64) { cancel() }})
	if !errors.Is(err, context.Canceled) {
		t.Errorf("error is %v", err)
	}
	if st := set.State(dir); st.PartialBytes != 100 {
		t.Errorf("%d bytes are kept", st.PartialBytes)
	}
}

func TestFetchCopiesFromFolder(t *testing.T) {
	t.Parallel()
	b := content(5000)
	from, dir := t.TempDir(), t.TempDir()
	set := one(File{Name: "x.bin", URLs: []string{"http://address.invalid/x"}, Size: 5000, SHA256: hex256(b)})
	refused(t, set.Fetch(context.Background(), Options{Folder: dir, SourceFolder: from}), "x.bin is not there; its address is http://address.invalid/x")
	path := filepath.Join(from, "x.bin")
	if err := os.WriteFile(path, append(content(4999), 'x'), 0o666); err != nil {
		t.Fatal(err)
	}
	refused(t, set.Fetch(context.Background(), Options{Folder: dir, SourceFolder: from}), "SHA-256 is")
	if err := os.WriteFile(path, b, 0o666); err != nil {
		t.Fatal(err)
	}
	if err := set.Fetch(context.Background(), Options{Folder: dir, SourceFolder: from}); err != nil {
		t.Fatal(err)
	}
	holdsFile(t, filepath.Join(dir, "set", "x.bin"), b)
	holdsFile(t, path, b)
	var refused *lock.WriteError
	if err := set.Fetch(context.Background(), Options{Folder: "/proc/none", SourceFolder: from}); runtime.GOOS == "linux" && !errors.As(err, &refused) {
		t.Errorf("a folder that cannot be written: %v", err)
	}
}

// A file compressed by another program passes by its content.
func TestContentIsVerified(t *testing.T) {
	t.Parallel()
	b := content(5000)
	pack := func(level int, b []byte) []byte {
		var out bytes.Buffer
		z, _ := gzip.NewWriterLevel(&out, level)
		z.Write(b)
		z.Close()
		return out.Bytes()
	}
	published := pack(9, b)
	from := t.TempDir()
	path := filepath.Join(from, "x.gz")
	set := one(File{Name: "x.gz", URLs: []string{""}, Size: int64(len(published)), SHA256: hex256(published), ContentMD5: hexMD5(b)})
	for _, c := range []struct {
		file []byte
		want string
	}{{published, ""}, {pack(0, b), ""}, {pack(9, b[1:]), "MD5 of its content, 4999 bytes, is"}, {b, "MD5 of its content"}} {
		if err := os.WriteFile(path, c.file, 0o666); err != nil {
			t.Fatal(err)
		}
		dir := t.TempDir()
		err := set.Fetch(context.Background(), Options{Folder: dir, SourceFolder: from})
		if c.want != "" {
			if !bytes.Equal(c.file, b) {
				refused(t, err, c.want)
			} else if err != nil {
				t.Errorf("the content itself: %v", err)
			}
		} else if err != nil {
			t.Error(err)
		}
	}
}

func tarOf(t testing.TB, members ...string) []byte {
	t.Helper()
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	w := tar.NewWriter(z)
	for i := 0; i < len(members); i += 2 {
		if err := w.WriteHeader(&tar.Header{Name: members[i], Size: int64(len(members[i+1])), Mode: 0o666, Typeflag: tar.TypeReg}); err != nil {
			t.Fatal(err)
		}
		io.WriteString(w, members[i+1])
	}
	if err := w.WriteHeader(&tar.Header{Name: "link", Linkname: "/etc/passwd", Typeflag: tar.TypeSymlink}); err != nil {
		t.Fatal(err)
	}
	w.Close()
	z.Close()
	return b.Bytes()
}

func zipOf(t testing.TB, members ...string) []byte {
	t.Helper()
	var b bytes.Buffer
	z := zip.NewWriter(&b)
	for i := 0; i < len(members); i += 2 {
		w, err := z.Create(members[i])
		if err != nil {
			t.Fatal(err)
		}
		io.WriteString(w, members[i+1])
	}
	z.Close()
	return b.Bytes()
}

func TestUnpackWritesKnownMembersOnly(t *testing.T) {
	t.Parallel()
	for kind, pack := range map[string]func(testing.TB, ...string) []byte{"tar": tarOf, "zip": zipOf} {
		t.Run(kind, func(t *testing.T) {
			a := &Archive{Members: []Member{
				{Path: "top/a", Name: "in/a", Size: 3, MD5: hexMD5([]byte("abc"))},
				{Path: "*/b", Name: "b", Size: 10},
			}}
			for _, c := range []struct {
				want    string
				members []string
			}{
				{"", []string{"../../evil", "x", "/evil", "x", "top/a", "abc", "any/where/b", "b b", "other", strings.Repeat("x", 1<<20)}},
				{"it has no member */b", []string{"top/a", "abc"}},
				{"MD5 is", []string{"top/a", "abd", "b", "b"}},
				{"it has 2 bytes or more, 3 are known", []string{"top/a", "ab", "b", "b"}},
				{"it has 11 bytes or more, 10 are known", []string{"top/a", "abc", "b", strings.Repeat("b", 1<<20)}},
				{"another one is b, too", []string{"top/a", "abc", "x/b", "b", "y/b", "c"}},
			} {
				from, dir := t.TempDir(), t.TempDir()
				b := pack(t, c.members...)
				if err := os.WriteFile(filepath.Join(from, "x"), b, 0o666); err != nil {
					t.Fatal(err)
				}
				set := one(File{Name: "x", URLs: []string{""}, SHA256: hex256(b), Unpack: a})
				err := set.Fetch(context.Background(), Options{Folder: dir, SourceFolder: from})
				if c.want != "" {
					refused(t, err, c.want)
					continue
				}
				if err != nil {
					t.Fatal(err)
				}
				holdsFile(t, filepath.Join(dir, "set", "in", "a"), []byte("abc"))
				holdsFile(t, filepath.Join(dir, "set", "b"), []byte("b b"))
				if got := names(t, dir) + " " + names(t, filepath.Join(dir, "set")); got != "set b fetched.json in" {
					t.Errorf("files %s", got)
				}
				if got := set.VerificationIn(dir); got != "complete by SHA-256, unchanged by its SHA-256 since it was fetched, size and MD5" {
					t.Errorf("verified: %s", got)
				}
			}
		})
	}
}

func TestReviewsAreConverted(t *testing.T) {
	t.Parallel()
	var members []string
	for _, part := range []string{"train", "test"} {
		members = append(members, "aclImdb/"+part+"/pos/0_9.txt", part+" good\tfilm", "aclImdb/"+part+"/neg/0_1.txt", part+" bad",
			"aclImdb/"+part+"/unsup/0_0.txt", "no class", "aclImdb/"+part+"/urls_pos.txt", "http://x/title/tt1/y\n",
			"aclImdb/"+part+"/urls_neg.txt", "http://x/title/tt2/y\n")
	}
	imdb, err := Lookup("imdb")
	if err != nil {
		t.Fatal(err)
	}
	b := tarOf(t, members...)
	s := serve(t, b)
	f := imdb.Files[0]
	f.Size, f.MD5, f.URLs = int64(len(b)), hexMD5(b), []string{s.URL}
	dir := t.TempDir()
	set := &Set{Name: "imdb", Files: []File{f}}
	if err := set.Fetch(context.Background(), Options{Folder: dir}); err != nil {
		t.Fatal(err)
	}
	holdsFile(t, filepath.Join(dir, "imdb", "imdb_train.tsv"), []byte("1\t0_9\ttt1\ttrain good\tfilm\n0\t0_1\ttt2\ttrain bad\n"))
	if got := names(t, filepath.Join(dir, "imdb")); got != "fetched.json imdb_test.tsv imdb_train.tsv" || !set.State(dir).Complete {
		t.Errorf("files %s", got)
	}
	// The archive is not kept, and the two files have no published checksum.
	if got := set.VerificationIn(dir); got != "complete by size and MD5, unchanged by its SHA-256 since it was fetched" {
		t.Errorf("verified: %s", got)
	}
	if err := os.Remove(filepath.Join(dir, "imdb", observedFile)); err != nil {
		t.Fatal(err)
	}
	if got := set.VerificationIn(dir); got != "not verified: nothing was recorded when it was fetched" {
		t.Errorf("verified without a record: %s", got)
	}
	if got := set.VerificationIn(t.TempDir()); got != "size and MD5" {
		t.Errorf("verified in an empty folder: %s", got)
	}
}

func TestContentRangeIsParsedStrictly(t *testing.T) {
	t.Parallel()
	for s, want := range map[string][2]int64{"bytes 5-9/10": {5, 10}, "bytes 0-0/*": {0, 0}} {
		first, _, total, err := parseContentRange(s)
		if err != nil || first != want[0] || total != want[1] {
			t.Errorf("%s: %d, %d, %v", s, first, total, err)
		}
	}
	for _, s := range []string{"", "bytes", "bytes */10", "bytes 5-4/10", "bytes -1-4/10", "bytes 5-9/9", "bytes 5-9/x", "items 5-9/10", "bytes 5-9"} {
		if _, _, _, err := parseContentRange(s); err == nil {
			t.Errorf("%q is taken", s)
		}
	}
}

// An answer that does not continue the existing bytes is not appended.
func TestAnswersAreHeldAgainstWhatIsThere(t *testing.T) {
	t.Parallel()
	b := content(100)
	for _, c := range []struct {
		name, span string
		status     int
		size       int64
		want       string
		left       string
	}{
		{"another place", "bytes 3-99/100", http.StatusPartialContent, 100, "the answer begins at byte 3, 40 was asked for", "x.bin.part"},
		{"no place", "bytes", http.StatusPartialContent, 100, `the Content-Range is "bytes"; bytes first-last/total is needed`, "x.bin.part"},
		{"nothing more", "", http.StatusRequestedRangeNotSatisfiable, 100, "the server has no byte 40; what was there is removed", ""},
		{"too little", "bytes 40-99/*", http.StatusPartialContent, 200, "it ended after 100 of 200 bytes", "x.bin.part"},
		{"too much", "bytes 40-99/*", http.StatusPartialContent, 50, "the server sends more than 50 bytes", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if got := r.Header.Get("Range"); got != "bytes=40-" {
					t.Errorf("asked for %q", got)
				}
				w.Header().Set("Content-Range", c.span)
				w.WriteHeader(c.status)
				w.Write(b[40:])
			}))
			defer s.Close()
			set, dir := one(File{Name: "x.bin", URLs: []string{s.URL}, Size: c.size, SHA256: hex256(b)}), t.TempDir()
			part := filepath.Join(dir, "set", "x.bin.part")
			if err := os.Mkdir(filepath.Dir(part), 0o777); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(part, b[:40], 0o666); err != nil {
				t.Fatal(err)
			}
			refused(t, set.Fetch(context.Background(), Options{Folder: dir}), "data set set: "+s.URL+": "+c.want)
			if got := names(t, filepath.Dir(part)); got != c.left {
				t.Errorf("files %q, want %q", got, c.left)
			}
		})
	}
}

// A complete part that only needs verification is not requested.
func TestWholePartIsNotAskedFor(t *testing.T) {
	t.Parallel()
	b, dir := content(100), t.TempDir()
	s := serve(t, b)
	path := filepath.Join(dir, "set", "x.bin")
	if err := os.Mkdir(filepath.Dir(path), 0o777); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path+".part", b, 0o666); err != nil {
		t.Fatal(err)
	}
	set := one(File{Name: "x.bin", URLs: []string{s.URL}, Size: 100, SHA256: hex256(b)})
	if err := set.Fetch(context.Background(), Options{Folder: dir}); err != nil || len(s.ranges) != 0 {
		t.Errorf("ranges %q, %v", s.ranges, err)
	}
	holdsFile(t, path, b)
}

// Parts that suffice for tasks are found in an incomplete set.
func TestPartsMakeASetReady(t *testing.T) {
	t.Parallel()
	set := one(File{Name: "x.bin"})
	set.Parts = []Part{{"two", true, []string{"a", "b"}}, {"one", false, []string{"b"}}}
	dir := t.TempDir()
	if err := os.Mkdir(filepath.Join(dir, "set"), 0o777); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ add, part string }{{"b", "one"}, {"a", "two"}} {
		if err := os.WriteFile(filepath.Join(dir, "set", c.add), nil, 0o666); err != nil {
			t.Fatal(err)
		}
		if st := set.State(dir); st.Complete || !st.IsReady() || st.Part == nil || st.Part != &set.Parts[map[string]int{"two": 0, "one": 1}[c.part]] {
			t.Errorf("with %s: %+v, want part %q", c.add, st, c.part)
		}
	}
}

func TestBrokenArchivesAreRefused(t *testing.T) {
	t.Parallel()
	short := tarOf(t, "a", strings.Repeat("attention ", 1000))
	wrong := bytes.Clone(short) // its checksum
	wrong[len(wrong)-8]++
	for _, c := range []struct{ name, file, want string }{
		{"one byte", "P", "unexpected EOF"},
		{"neither", "attention is long", "gzip: invalid header"},
		{"zip", "PK attention", "zip: not a valid zip file"},
		{"cut", string(short[:len(short)/2]), "unexpected EOF"},
		{"end cut", string(short[:len(short)-8]), "unexpected EOF"},
		{"damaged", string(wrong), "gzip: invalid checksum"},
	} {
		t.Run(c.name, func(t *testing.T) {
			from, dir := t.TempDir(), t.TempDir()
			path := filepath.Join(from, "x")
			if err := os.WriteFile(path, []byte(c.file), 0o666); err != nil {
				t.Fatal(err)
			}
			set := one(File{Name: "x", URLs: []string{""}, Unpack: &Archive{Members: []Member{{Path: "a", Name: "a", Size: 1 << 20}}}})
			refused(t, set.Fetch(context.Background(), Options{Folder: dir, SourceFolder: from}), "data set set: "+path+": ", c.want)
			if got := names(t, filepath.Join(dir, "set")); got != "" {
				t.Errorf("files %s", got)
			}
		})
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	from, dir := t.TempDir(), t.TempDir()
	if err := os.WriteFile(filepath.Join(from, "x"), short, 0o666); err != nil {
		t.Fatal(err)
	}
	for name, a := range map[string]*Archive{"unpacked": {Members: []Member{{Path: "a", Name: "a", Size: 1 << 20}}}, "copied": nil} {
		if err := one(File{Name: "x", URLs: []string{""}, Unpack: a}).Fetch(ctx, Options{Folder: dir, SourceFolder: from}); !errors.Is(err, context.Canceled) {
			t.Errorf("%s: error is %v, want %v", name, err, context.Canceled)
		}
		if got := names(t, filepath.Join(dir, "set")); got != "" {
			t.Errorf("%s: files %s", name, got)
		}
	}
}

// Existing files or folders in the way are not changed.
func TestPathsInTheWayAreLeftAlone(t *testing.T) {
	t.Parallel()
	b := tarOf(t, "a", "abc")
	s := serve(t, b)
	in := &Archive{Members: []Member{{Path: "a", Name: "in/a", Size: 3}}}
	for _, c := range []struct {
		file, folder string // what is there
		f            File
		want         string
	}{
		{"set", "", File{URLs: []string{s.URL}}, "set: not a folder"},
		{"", "set/x.part", File{URLs: []string{s.URL}}, "x.part: is a folder"},
		{"set/in", "", File{URLs: []string{s.URL}, Unpack: in}, "in: not a folder"},
		{"", "set", File{URLs: []string{":"}}, "data set set: :: parse \":\": missing protocol scheme"},
	} {
		dir := t.TempDir()
		c.f.Name = "x"
		if err := os.MkdirAll(filepath.Join(dir, c.folder, filepath.Dir(c.file)), 0o777); err != nil {
			t.Fatal(err)
		}
		if c.file != "" {
			if err := os.WriteFile(filepath.Join(dir, c.file), []byte("mine"), 0o666); err != nil {
				t.Fatal(err)
			}
		}
		refused(t, one(c.f).Fetch(context.Background(), Options{Folder: dir}), c.want)
		if c.file != "" {
			holdsFile(t, filepath.Join(dir, c.file), []byte("mine"))
		}
		if info, err := os.Stat(filepath.Join(dir, c.folder)); err != nil || !info.IsDir() {
			t.Errorf("%s: %v, %v", c.folder, info, err)
		}
	}
}

func TestSizeAndVerificationAreStated(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		files []File
		size  int64
		known bool
		by    string
	}{
		{nil, 0, true, "-"},
		{[]File{{Size: 5, SHA256: "00"}, {Size: 7, MD5: "00"}, {Size: 1, SHA256: "01"}}, 13, true, "SHA-256, size and MD5"},
		{[]File{{Size: 5}, {ContentMD5: "00"}}, 5, false, "size only, no published checksum known, MD5 of the content"},
	} {
		s := &Set{Files: c.files}
		if size, known := s.Size(); size != c.size || known != c.known || s.VerificationMethod() != c.by {
			t.Errorf("%d bytes, known %v, by %s; want %d, %v, %s", size, known, s.VerificationMethod(), c.size, c.known, c.by)
		}
	}
}

// A file with a known checksum of its content, complete and truncated.
func TestContentChecksumSuffices(t *testing.T) {
	t.Parallel()
	var z bytes.Buffer
	w := gzip.NewWriter(&z)
	w.Write(content(5000))
	w.Close()
	path := filepath.Join(t.TempDir(), "x.gz")
	f := File{Name: "x.gz", ContentMD5: hexMD5(content(5000))}
	for _, c := range []struct {
		n    int
		want string
	}{{z.Len(), ""}, {z.Len() / 2, path + ": unexpected EOF"}, {4, path + ": "}} {
		if err := os.WriteFile(path, z.Bytes()[:c.n], 0o666); err != nil {
			t.Fatal(err)
		}
		if err := f.verifyFile(t.Context(), path); c.want != "" {
			refused(t, err, c.want)
		} else if err != nil {
			t.Error(err)
		}
	}
}

// Every file of the catalogue has an address, a unique name and the stated verification.
func TestCatalogueIsComplete(t *testing.T) {
	t.Parallel()
	seen := map[string]bool{}
	for _, s := range append(Sets(), Models()...) {
		if seen[s.Name] || s.Doc == "" || s.Terms == "" || len(s.Files) == 0 && !s.Generated || filepath.Base(s.Name) != s.Name {
			t.Errorf("%+v", s)
		}
		seen[s.Name] = true
		files := map[string]bool{}
		for _, f := range s.Files {
			if files[f.Name] || len(f.URLs) == 0 || filepath.Base(f.Name) != f.Name && !s.IsModel || !filepath.IsLocal(f.Name) {
				t.Errorf("%s: %+v", s.Name, f)
			}
			files[f.Name] = true
			for _, sum := range []struct {
				hex  string
				size int
			}{{f.SHA256, 64}, {f.MD5, 32}, {f.ContentMD5, 32}} {
				if _, err := hex.DecodeString(sum.hex); err != nil || sum.hex != "" && len(sum.hex) != sum.size {
					t.Errorf("%s: %s: checksum %s", s.Name, f.Name, sum.hex)
				}
			}
			for _, u := range f.URLs {
				if !strings.HasPrefix(u, "https://") && f.SHA256 == "" || !strings.HasPrefix(u, "http") {
					t.Errorf("%s: %s: address %s", s.Name, f.Name, u)
				}
			}
			if f.Unpack != nil {
				for _, m := range f.Unpack.Members {
					if !filepath.IsLocal(m.Name) || m.Size == 0 && f.Unpack.convert == nil {
						t.Errorf("%s: %s: %+v", s.Name, f.Name, m)
					}
				}
			}
		}
	}
	for name, want := range map[string]string{"mnist": "SHA-256 or MD5 of the content", "cifar10": "SHA-256", "imdb": "size and MD5", "warandpeace": "not verified: no published checksum known"} {
		if s, err := Lookup(name); err != nil || s.VerificationMethod() != want {
			t.Errorf("%s: %s, %v", name, s.VerificationMethod(), err)
		}
	}
	if _, err := Lookup("mnst"); err == nil || !strings.Contains(err.Error(), "there are: mnist, cifar10,") {
		t.Error(err)
	}
}

// Real files beside a checkout have the sizes and checksums of the catalogue.
func TestRealFilesMatchTheCatalogue(t *testing.T) {
	t.Parallel()
	root := os.Getenv("FARFIELD_DATA")
	if root == "" {
		root = filepath.Join("..", "..", "..", "shared", "data")
	}
	if _, err := os.Stat(filepath.Join(root, "cifar10", "cifar10_batch_50.png")); err != nil {
		t.Skip("neither beside this checkout nor in FARFIELD_DATA are the data sets of this test")
	}
	for _, name := range []string{"mnist", "tinyshakespeare", "genome"} {
		s, err := Lookup(name)
		if err != nil {
			t.Fatal(err)
		}
		if err := s.Verify(t.Context(), root); err != nil {
			t.Error(err)
		}
		dir := t.TempDir()
		if err := s.Fetch(context.Background(), Options{Folder: dir, SourceFolder: filepath.Join(root, name)}); err != nil {
			t.Error(err)
		}
		if !s.State(dir).Complete {
			t.Errorf("%s is not whole", name)
		}
	}
	for _, name := range []string{"cifar10", "imdb", "listops", "enwik8", "warandpeace"} {
		s, err := Lookup(name)
		if err != nil {
			t.Fatal(err)
		}
		if st := s.State(root); st.Complete || st.Part == nil {
			t.Errorf("%s: %+v", name, st)
		}
	}
}

// Unpacking any bytes writes only known members, under their names in the set.
func FuzzUnpack(f *testing.F) {
	f.Add(tarOf(f, "top/a", "abc", "../../evil", "x", "/evil", "x"))
	f.Add(zipOf(f, "top/a", "abc", "../../evil", "x", "b/", ""))
	f.Add([]byte("PK"))
	a := &Archive{Members: []Member{{Path: "top/a", Name: "in/a", Size: 3}, {Path: "*/b", Name: "b", Size: 10}}}
	f.Fuzz(func(t *testing.T, b []byte) {
		dir := filepath.Join(t.TempDir(), "set")
		archive := filepath.Join(filepath.Dir(dir), "archive")
		if err := os.WriteFile(archive, b, 0o666); err != nil {
			t.Fatal(err)
		}
		if n := check.AllocatedBytes(func() { _ = a.unpackMembers(context.Background(), archive, dir) }); n > 4<<20+512*int64(len(b)) {
			t.Errorf("%d bytes are unpacked in %d bytes of memory", len(b), n)
		}
		err := filepath.WalkDir(filepath.Dir(dir), func(path string, d fs.DirEntry, err error) error {
			known := []string{archive, dir, filepath.Dir(dir), filepath.Join(dir, "in"), filepath.Join(dir, "in", "a"), filepath.Join(dir, "b")}
			if err == nil && !slices.Contains(known, path) {
				t.Errorf("%s is written", path)
			}
			return err
		})
		if err != nil {
			t.Error(err)
		}
	})
}
