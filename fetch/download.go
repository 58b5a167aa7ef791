package fetch

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/farfield-ml/farfield/internal/atomicfile"
	"github.com/farfield-ml/farfield/internal/infile"
	"github.com/farfield-ml/farfield/internal/lock"
)

// Options says how a set is fetched.
type Options struct {
	Folder   string                               // of sets
	From     string                               // folder where the files are; "": their addresses
	Client   *http.Client                         // nil: one of its own, with Limits
	Progress func(file string, done, total int64) // may be nil; total is 0 where it is not known
	Waiting  func(process int)                    // may be nil; called once before a wait for another process that fetches the set, 0: unknown
	Limits   Limits
}

// Limits end downloads from servers that are too slow. A field of 0 is that of
// DefaultLimits.
type Limits struct {
	Connect time.Duration // to connect
	TLS     time.Duration // for the handshake
	Header  time.Duration // from a request to the header of its answer

	// At least Bytes must arrive in each Interval. The first needs one byte alone, so a
	// slow start is forgiven.
	Interval time.Duration
	Bytes    int64
}

// DefaultLimits are about 1 kB/s: far below a modem, far above a server that keeps a
// connection alive.
var DefaultLimits = Limits{
	Connect: 30 * time.Second, TLS: 30 * time.Second, Header: time.Minute,
	Interval: time.Minute, Bytes: 60 << 10,
}

// orDefault fills in the fields that are 0.
func (l Limits) orDefault() Limits {
	d := DefaultLimits
	return Limits{
		cmp.Or(l.Connect, d.Connect), cmp.Or(l.TLS, d.TLS), cmp.Or(l.Header, d.Header),
		cmp.Or(l.Interval, d.Interval), cmp.Or(l.Bytes, d.Bytes),
	}
}

// client returns a client with the limits.
func (l Limits) client() *http.Client {
	t := http.DefaultTransport.(*http.Transport).Clone()
	t.DialContext = (&net.Dialer{Timeout: l.Connect}).DialContext
	t.TLSHandshakeTimeout = l.TLS
	t.ResponseHeaderTimeout = l.Header
	t.MaxResponseHeaderBytes = 1 << 20
	t.DisableCompression = true // a file of gzip is to stay one
	return &http.Client{Transport: t}
}

// judge reports an interval in which too little arrived.
func (l Limits) judge(got int64, first bool) error {
	switch {
	case got == 0:
		return fmt.Errorf("no byte in %v", l.Interval)
	case got < l.Bytes && !first:
		return fmt.Errorf("%d bytes in %v; at least %d are needed", got, l.Interval, l.Bytes)
	}
	return nil
}

// watch cancels a download that is too slow, until ctx ends. got counts its bytes.
func (l Limits) watch(ctx context.Context, cancel context.CancelCauseFunc, got *atomic.Int64) {
	tick := time.NewTicker(l.Interval)
	defer tick.Stop()
	for first := true; ; first = false {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			if err := l.judge(got.Swap(0), first); err != nil {
				cancel(err)
				return
			}
		}
	}
}

// The names of what a download that is not whole leaves: its bytes, and the origin of
// them. Older versions wrote a tag in place of the origin.
const (
	partSuffix   = ".part"
	originSuffix = ".part.json"
	tagSuffix    = ".part.etag"
)

// sizeLimit is the most that is fetched of a file of unknown size.
const sizeLimit = 32 << 30

// Fetch brings the files of the set that are not there to the folder. A download that
// was interrupted, by ctx or by the network, goes on where it ended when Fetch is
// called again. One process at a time fetches a set: the next waits, and then
// finds its files there.
func (s *Set) Fetch(ctx context.Context, o Options) error {
	if len(s.Files) == 0 {
		return fmt.Errorf("data set %s: there is nothing to fetch", s.Name)
	}
	dir := filepath.Join(o.Folder, s.Name)
	if err := os.MkdirAll(dir, 0o777); err != nil {
		return err
	}
	// A whole set needs no lock, so it may lie in a folder that is read only.
	if s.whole(ctx, dir) && len(s.leftovers(dir)) == 0 {
		return nil
	}
	o.Limits = o.Limits.orDefault()
	if o.Client == nil {
		o.Client = o.Limits.client()
		defer o.Client.CloseIdleConnections()
	}
	if o.Progress == nil {
		o.Progress = func(string, int64, int64) {}
	}
	owned, err := lock.WaitFolder(ctx, dir, func(held *lock.HeldError) {
		if o.Waiting != nil {
			o.Waiting(held.PID)
		}
	})
	if err != nil {
		return err
	}
	defer owned.Release()
	for i := range s.Files {
		f := &s.Files[i]
		if err := f.bring(ctx, dir, o); err != nil {
			return fmt.Errorf("data set %s: %w", s.Name, err)
		}
	}
	for _, path := range s.leftovers(dir) {
		if err := os.Remove(path); err != nil {
			return err
		}
	}
	if s.check != nil {
		return s.check(dir)
	}
	return nil
}

// whole reports whether all files are in the folder of the set, and are verified.
func (s *Set) whole(ctx context.Context, dir string) bool {
	known, err := readObserved(dir)
	if err != nil {
		return false
	}
	for i := range s.Files {
		if !s.Files[i].there(ctx, dir, known) {
			return false
		}
	}
	return s.check == nil || s.check(dir) == nil
}

// leftovers lists what downloads of the set's files have left in its folder.
func (s *Set) leftovers(dir string) (paths []string) {
	for i := range s.Files {
		for _, suffix := range []string{partSuffix, originSuffix, tagSuffix} {
			path := filepath.Join(dir, s.Files[i].Name+suffix)
			if info, err := os.Lstat(path); err == nil && info.Mode().IsRegular() {
				paths = append(paths, path)
			}
		}
	}
	return paths
}

// bring fetches the file unless it is there, and notes what was observed of it.
func (f *File) bring(ctx context.Context, dir string, o Options) error {
	known, err := readObserved(dir)
	if err != nil {
		return err
	}
	if f.there(ctx, dir, known) {
		return nil
	}
	if err := ctx.Err(); err != nil {
		return context.Cause(ctx)
	}
	// The fetched files may be another version. Until they are observed they do not
	// count as present, so that a killed fetch is repeated.
	before := maps.Clone(known)
	for name := range f.results() {
		delete(known, name)
		if !f.published(name) {
			known[name] = observation{}
		}
	}
	if err := writeObserved(dir, known); err != nil {
		return err
	}
	if err := f.fetch(ctx, dir, o, known); err != nil {
		return errors.Join(err, writeObserved(dir, before))
	}
	return writeObserved(dir, known)
}

// fetch takes or downloads the file and sets in known what is observed of it.
func (f *File) fetch(ctx context.Context, dir string, o Options, known observed) (err error) {
	proof := "the file that it was copied from"
	if o.From != "" {
		err = f.take(ctx, dir, o)
	} else {
		proof, err = f.download(ctx, dir, o)
	}
	if err != nil {
		return err
	}
	if f.strong() {
		proof = f.verified()
	}
	for name := range f.results() {
		if f.published(name) {
			continue
		}
		if known[name], err = observe(ctx, filepath.Join(dir, filepath.FromSlash(name)), proof); err != nil {
			return err
		}
	}
	return nil
}

// there reports whether what the file becomes is in the folder of the set, and is
// verified.
func (f *File) there(ctx context.Context, dir string, known observed) bool {
	for name := range f.results() {
		if _, err := os.Stat(filepath.Join(dir, filepath.FromSlash(name))); err != nil {
			return false
		}
	}
	return f.check(ctx, dir, known) == nil
}

// check verifies what the file has become, by what is published of it or, where
// nothing is, by what was observed when it was fetched.
func (f *File) check(ctx context.Context, dir string, known observed) error {
	for name := range f.results() {
		if note, ok := known[name]; ok && !f.published(name) {
			if err := note.verify(ctx, filepath.Join(dir, filepath.FromSlash(name))); err != nil {
				return err
			}
		}
	}
	if f.Unpack == nil {
		return f.verify(ctx, filepath.Join(dir, f.Name))
	}
	for _, m := range f.Unpack.Members {
		known := File{Size: m.Size, MD5: m.MD5}
		if m.MD5 == "" {
			known.Size = 0 // a bound
		}
		if err := known.verify(ctx, filepath.Join(dir, filepath.FromSlash(m.Name))); err != nil {
			return err
		}
	}
	return nil
}

// Verify compares the files of the set in a folder of sets with what is published of
// them or was observed when they were fetched. Its error names the first file that
// differs or is not there.
func (s *Set) Verify(ctx context.Context, folder string) error {
	dir := filepath.Join(folder, s.Name)
	known, err := readObserved(dir)
	if err != nil {
		return err
	}
	for i := range s.Files {
		if err := s.Files[i].check(ctx, dir, known); err != nil {
			return err
		}
	}
	if s.check != nil {
		return s.check(dir)
	}
	return nil
}

// take copies the file from o.From, verified, or unpacks it from there.
func (f *File) take(ctx context.Context, dir string, o Options) error {
	from := filepath.Join(o.From, filepath.FromSlash(f.Name))
	if _, err := os.Stat(from); err != nil {
		return fmt.Errorf("%s: %s is not there; its address is %s", o.From, f.Name, f.URLs[0])
	}
	if err := f.verify(ctx, from); err != nil {
		return err
	}
	if f.Unpack != nil {
		return f.Unpack.unpack(ctx, from, dir)
	}
	in, err := infile.Open(from)
	if err != nil {
		return err
	}
	defer in.Close()
	to := filepath.Join(dir, f.Name)
	return atomicfile.Write(to, func(w io.Writer) error {
		_, err := io.Copy(w, &interruptible{ctx, in})
		return err
	})
}

// download fetches the file from the first address that gives it. It returns what
// proved that it is whole.
func (f *File) download(ctx context.Context, dir string, o Options) (proof string, err error) {
	part := filepath.Join(dir, f.Name+partSuffix)
	var failures []error
	for _, url := range f.URLs {
		proof, err := f.receive(ctx, url, part, o)
		if errors.Is(err, errChanged) {
			removePart(part)
			proof, err = f.receive(ctx, url, part, o)
		}
		if err == nil {
			return proof, f.finish(ctx, part, dir)
		}
		if ctx.Err() != nil {
			return "", context.Cause(ctx)
		}
		failures = append(failures, explain(url, err))
	}
	return "", errors.Join(failures...)
}

// removePart removes a download that is not whole, and its origin.
func removePart(part string) {
	os.Remove(part)
	os.Remove(strings.TrimSuffix(part, partSuffix) + originSuffix)
}

// finish verifies a whole download and gives it its name, or unpacks it. One that
// is not what it should be is removed.
func (f *File) finish(ctx context.Context, part, dir string) error {
	if err := f.verify(ctx, part); err != nil {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		removePart(part)
		return fmt.Errorf("what was fetched is removed: %w", err)
	}
	if f.Unpack != nil {
		err := f.Unpack.unpack(ctx, part, dir)
		var path *fs.PathError
		var link *os.LinkError
		if err != nil && ctx.Err() == nil && !f.strong() && !errors.As(err, &path) && !errors.As(err, &link) {
			// The archive is at fault, not the place to unpack to.
			removePart(part)
			return fmt.Errorf("what was fetched is removed: %w", err)
		}
		return err
	}
	return atomicfile.Replace(part, filepath.Join(dir, f.Name))
}

// receive appends to part what the address has beyond it, on the disk when it
// returns without an error. It returns what proved that the part is whole, and
// errChanged where the part is of another version than the answer.
func (f *File) receive(ctx context.Context, url, part string, o Options) (proof string, err error) {
	have, err := partSize(part)
	if err != nil {
		return "", err
	}
	originFile := strings.TrimSuffix(part, partSuffix) + originSuffix
	of := readOrigin(originFile)
	if of.URL != url {
		of = origin{}
	}
	switch {
	case f.Size > 0 && have == f.Size && f.strong():
		return "", nil // the checksum proves it
	case have > 0 && have == of.Bytes && of.validator() != "" && (f.Size == 0 || f.Size == have):
		return of.proof(), nil
	case f.Size > 0 && have > f.Size, of.Bytes > 0 && have > of.Bytes, of.validator() == "" && !f.strong():
		have = 0 // nothing would prove that it is of one version
	}

	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return "", err
	}
	req.Header.Set("Accept-Encoding", "identity")
	if have > 0 {
		req.Header.Set("Range", fmt.Sprintf("bytes=%d-", have))
		if v := of.validator(); v != "" {
			req.Header.Set("If-Range", v)
		}
	}
	// The client may be one without limits.
	most := o.Limits.Connect + o.Limits.TLS + o.Limits.Header
	late := time.AfterFunc(most, func() { cancel(fmt.Errorf("no answer in %v", most)) })
	resp, err := o.Client.Do(req)
	late.Stop()
	if err != nil {
		return "", because(ctx, err)
	}
	defer resp.Body.Close()
	end := int64(0) // of the answer; 0: unknown
	total := int64(0)
	switch {
	case resp.StatusCode == http.StatusOK:
		have = 0
		total = max(resp.ContentLength, 0)
		end = total
		if total == 0 && f.Size == 0 && !f.strong() && !framedEnd(resp) {
			return "", errors.New("the answer has no length, and no checksum is known: nothing would prove that it is whole")
		}
	case resp.StatusCode == http.StatusPartialContent && have > 0:
		var first, last int64
		if first, last, total, err = contentRange(resp.Header.Get("Content-Range")); err != nil {
			return "", err
		}
		if first != have {
			return "", fmt.Errorf("the answer begins at byte %d, %d was asked for", first, have)
		}
		if n := resp.ContentLength; n >= 0 && n != last-first+1 {
			return "", fmt.Errorf("the Content-Range has %d bytes, the Content-Length is %d", last-first+1, n)
		}
		if !of.same(resp, total, f.strong()) {
			return "", errChanged
		}
		end = last + 1
	case resp.StatusCode == http.StatusRequestedRangeNotSatisfiable && have > 0:
		removePart(part)
		return "", fmt.Errorf("the server has no byte %d; what was there is removed", have)
	default:
		return "", fmt.Errorf("the server answers %s", resp.Status)
	}
	if f.Size > 0 && total > 0 && total != f.Size {
		return "", fmt.Errorf("the server has %d bytes, %d are known", total, f.Size)
	}
	if total == 0 {
		total = f.Size
	}
	if have == 0 {
		of = originOf(url, resp, total)
		// The origin is there before any byte of it is.
		if err := os.Remove(part); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return "", err
		}
		if err := of.write(originFile); err != nil {
			return "", err
		}
	}
	out, err := os.OpenFile(part, os.O_WRONLY|os.O_CREATE, 0o666)
	if err != nil {
		return "", err
	}
	defer out.Close()
	if _, err := out.Seek(have, io.SeekStart); err != nil {
		return "", err
	}
	limit := total
	if limit == 0 {
		limit = sizeLimit
	}
	var got atomic.Int64
	go o.Limits.watch(ctx, cancel, &got)
	body := io.TeeReader(io.LimitReader(resp.Body, limit-have+1), counted(func(n int) {
		got.Add(int64(n))
		have += int64(n)
		o.Progress(f.Name, have, total)
	}))
	_, err = io.Copy(out, body)
	if syncErr := out.Sync(); err == nil {
		err = syncErr
	}
	switch {
	case err != nil:
		return "", because(ctx, err)
	case have > limit, end > 0 && have > end:
		removePart(part)
		return "", fmt.Errorf("the server sends more than %d bytes", min(limit, cmp.Or(end, limit)))
	case have < max(total, end):
		return "", fmt.Errorf("it ended after %d of %d bytes", have, max(total, end))
	case have == 0:
		removePart(part)
		return "", errors.New("the answer is empty")
	}
	of.Bytes = have
	return of.proof(), nil
}

// partSize returns the bytes of a download that is not whole; 0 where there is none.
func partSize(part string) (int64, error) {
	f, err := infile.Open(part)
	if errors.Is(err, fs.ErrNotExist) {
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return 0, err
	}
	return info.Size(), nil
}

// framedEnd reports whether the end of an answer without a length is told apart from
// the end of its connection.
func framedEnd(resp *http.Response) bool {
	return resp.ContentLength >= 0 || resp.ProtoMajor >= 2 || len(resp.TransferEncoding) > 0
}

// strong reports whether a checksum is published, which tells two versions apart.
func (f *File) strong() bool { return f.SHA256 != "" || f.MD5 != "" || f.ContentMD5 != "" }

// published reports whether a checksum of a result is published.
func (f *File) published(name string) bool {
	if f.Unpack == nil {
		return f.strong()
	}
	return slices.ContainsFunc(f.Unpack.Members, func(m Member) bool { return m.Name == name && m.MD5 != "" })
}

// because returns why ctx ended, if that is why err came.
func because(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return err
}

// counted is a writer that says how much was written.
type counted func(n int)

func (c counted) Write(p []byte) (int, error) {
	c(len(p))
	return len(p), nil
}

// contentRange reads "bytes first-last/total"; a total of * is 0.
func contentRange(s string) (first, last, total int64, err error) {
	bad := fmt.Errorf("the Content-Range is %.60q; bytes first-last/total is needed", s)
	rest, ok := strings.CutPrefix(s, "bytes ")
	span, all, ok2 := strings.Cut(rest, "/")
	from, to, ok3 := strings.Cut(span, "-")
	if !ok || !ok2 || !ok3 {
		return 0, 0, 0, bad
	}
	if first, err = strconv.ParseInt(from, 10, 64); err != nil || first < 0 {
		return 0, 0, 0, bad
	}
	if last, err = strconv.ParseInt(to, 10, 64); err != nil || last < first {
		return 0, 0, 0, bad
	}
	if all == "*" {
		return first, last, 0, nil
	}
	if total, err = strconv.ParseInt(all, 10, 64); err != nil || total <= last {
		return 0, 0, 0, bad
	}
	return first, last, total, nil
}

// ErrOffline is in the errors of addresses that could not be reached at all.
var ErrOffline = errors.New("no connection")

// explain says which address failed, and whether it could be reached.
func explain(url string, err error) error {
	var dns *net.DNSError
	var op *net.OpError
	if errors.As(err, &dns) || errors.As(err, &op) && op.Op == "dial" {
		return fmt.Errorf("%s: %w: %w", url, ErrOffline, err)
	}
	return fmt.Errorf("%s: %w", url, err)
}
