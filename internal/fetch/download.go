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

// Options configures Fetch.
type Options struct {
	Folder       string                               // folder that holds the folders of the sets
	SourceFolder string                               // copy the files from this folder; "": download them
	Client       *http.Client                         // nil: a client with Limits
	Progress     func(file string, done, total int64) // may be nil; total of 0 means unknown
	OnWait       func(process int)                    // may be nil; called once before waiting for another process, whose id is 0 if unknown
	Limits       Limits
}

// Limits bounds the time of downloads. A field of 0 means that of DefaultLimits.
type Limits struct {
	Connect time.Duration // time to connect
	TLS     time.Duration // time of the TLS handshake
	Header  time.Duration // time from the request to the header of the response

	// At least Bytes must arrive in each Interval. One byte is enough in the first.
	Interval time.Duration
	Bytes    int64
}

// DefaultLimits demands about 1 kB/s: far less than a modem has, far more than a server that only
// keeps a connection open.
var DefaultLimits = Limits{
	Connect: 30 * time.Second, TLS: 30 * time.Second, Header: time.Minute,
	Interval: time.Minute, Bytes: 60 << 10,
}

// withDefaults replaces fields of 0 by DefaultLimits.
func (l Limits) withDefaults() Limits {
	d := DefaultLimits
	return Limits{
		cmp.Or(l.Connect, d.Connect), cmp.Or(l.TLS, d.TLS), cmp.Or(l.Header, d.Header),
		cmp.Or(l.Interval, d.Interval), cmp.Or(l.Bytes, d.Bytes),
	}
}

// newClient returns an HTTP client with the limits.
func (l Limits) newClient() *http.Client {
	t := http.DefaultTransport.(*http.Transport).Clone()
	t.DialContext = (&net.Dialer{Timeout: l.Connect}).DialContext
	t.TLSHandshakeTimeout = l.TLS
	t.ResponseHeaderTimeout = l.Header
	t.MaxResponseHeaderBytes = 1 << 20
	t.DisableCompression = true // keep gzip files compressed
	return &http.Client{Transport: t}
}

// checkInterval returns an error if too few bytes arrived in an interval.
func (l Limits) checkInterval(got int64, first bool) error {
	switch {
	case got == 0:
		return fmt.Errorf("no byte in %v", l.Interval)
	case got < l.Bytes && !first:
		return fmt.Errorf("%d bytes in %v; at least %d are needed", got, l.Interval, l.Bytes)
	}
	return nil
}

// cancelSlow cancels a slow download; it returns when ctx ends. got counts received bytes.
func (l Limits) cancelSlow(ctx context.Context, cancel context.CancelCauseFunc, got *atomic.Int64) {
	tick := time.NewTicker(l.Interval)
	defer tick.Stop()
	for first := true; ; first = false {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			if err := l.checkInterval(got.Swap(0), first); err != nil {
				cancel(err)
				return
			}
		}
	}
}

// Suffixes of the files of an incomplete download: its bytes, and their origin. Older versions
// wrote a tag instead of the origin.
const (
	partSuffix   = ".part"
	originSuffix = ".part.json"
	tagSuffix    = ".part.etag"
)

// sizeLimit bounds a file of unknown size.
const sizeLimit = 32 << 30

// Fetch downloads or copies the missing files of the set. If ctx or the network interrupts it, a
// later call continues the download. One process at a time fetches a set; others wait. Fetch
// returns an error if a file cannot be fetched or verified, or if ctx ends.
func (s *Set) Fetch(ctx context.Context, o Options) error {
	if len(s.Files) == 0 {
		return fmt.Errorf("%s: there is nothing to fetch", s.title())
	}
	dir := filepath.Join(o.Folder, s.Name)
	if err := atomicfile.MakeFolder(dir); err != nil {
		return err
	}
	// A complete set needs no lock, so its folder may be read-only.
	if s.isComplete(ctx, dir) && len(s.listLeftovers(dir)) == 0 {
		return nil
	}
	o.Limits = o.Limits.withDefaults()
	if o.Client == nil {
		o.Client = o.Limits.newClient()
		defer o.Client.CloseIdleConnections()
	}
	if o.Progress == nil {
		o.Progress = func(string, int64, int64) {}
	}
	owned, err := lock.WaitFolder(ctx, dir, func(held *lock.HeldError) {
		if o.OnWait != nil {
			o.OnWait(held.PID)
		}
	})
	if err != nil {
		return err
	}
	defer owned.Release()
	for i := range s.Files {
		f := &s.Files[i]
		if err := atomicfile.MakeFolder(filepath.Dir(filepath.Join(dir, filepath.FromSlash(f.Name)))); err != nil {
			return err
		}
		if err := f.fetchIfMissing(ctx, dir, o); err != nil {
			return fmt.Errorf("%s: %w", s.title(), err)
		}
	}
	for _, path := range s.listLeftovers(dir) {
		if err := os.Remove(path); err != nil {
			return err
		}
	}
	return nil
}

// isComplete reports whether all files of the set exist in dir and pass verification.
func (s *Set) isComplete(ctx context.Context, dir string) bool {
	known, err := readObserved(dir)
	if err != nil {
		return false
	}
	for i := range s.Files {
		if !s.Files[i].isVerified(ctx, dir, known) {
			return false
		}
	}
	return true
}

// listLeftovers lists the files that interrupted downloads of the set left in dir.
func (s *Set) listLeftovers(dir string) (paths []string) {
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

// fetchIfMissing fetches the file unless it is verified in dir, and records its observations.
func (f *File) fetchIfMissing(ctx context.Context, dir string, o Options) error {
	known, err := readObserved(dir)
	if err != nil {
		return err
	}
	if f.isVerified(ctx, dir, known) {
		return nil
	}
	if err := ctx.Err(); err != nil {
		return context.Cause(ctx)
	}
	// The fetched files may be another version. Mark them as unobserved first, so that a killed
	// fetch is repeated.
	before := maps.Clone(known)
	for name := range f.resultSizes() {
		delete(known, name)
		if !f.isPublished(name) {
			known[name] = observation{}
		}
	}
	if err := writeObserved(dir, known); err != nil {
		return err
	}
	proof := "the file that it was copied from"
	if o.SourceFolder != "" {
		err = f.copyFile(ctx, dir, o)
	} else {
		proof, err = f.downloadFile(ctx, dir, o)
	}
	if err != nil {
		return errors.Join(err, writeObserved(dir, before))
	}
	// The results are in place: after an error here the marks stay, and the fetch is repeated.
	if err := f.observeResults(ctx, dir, proof, known); err != nil {
		return err
	}
	return writeObserved(dir, known)
}

// observeResults sets the observations of the fetched results in known.
func (f *File) observeResults(ctx context.Context, dir, proof string, known observations) (err error) {
	if f.hasChecksum() {
		proof = f.verificationMethod()
	}
	for name := range f.resultSizes() {
		if f.isPublished(name) {
			continue
		}
		if known[name], err = observeFile(ctx, filepath.Join(dir, filepath.FromSlash(name)), proof); err != nil {
			return err
		}
	}
	return nil
}

// isVerified reports whether all results of the file exist in dir and pass verification.
func (f *File) isVerified(ctx context.Context, dir string, known observations) bool {
	for name := range f.resultSizes() {
		if _, err := os.Stat(filepath.Join(dir, filepath.FromSlash(name))); err != nil {
			return false
		}
	}
	return f.checkResults(ctx, dir, known) == nil
}

// checkResults verifies the results of the file by published checksums, or else by the
// observations of their fetch.
func (f *File) checkResults(ctx context.Context, dir string, known observations) error {
	for name := range f.resultSizes() {
		if note, ok := known[name]; ok && !f.isPublished(name) {
			if err := note.verifyFile(ctx, filepath.Join(dir, filepath.FromSlash(name))); err != nil {
				return err
			}
		}
	}
	if f.Unpack == nil {
		return f.verifyFile(ctx, filepath.Join(dir, f.Name))
	}
	for _, m := range f.Unpack.Members {
		known := File{Size: m.Size, MD5: m.MD5}
		if m.MD5 == "" {
			known.Size = 0 // only a bound
		}
		if err := known.verifyFile(ctx, filepath.Join(dir, filepath.FromSlash(m.Name))); err != nil {
			return err
		}
	}
	return nil
}

// Verify checks the files of the set below folder by their published checksums, or by what was
// recorded when they were fetched. It returns an error that names the first file that is missing or
// different.
func (s *Set) Verify(ctx context.Context, folder string) error {
	dir := filepath.Join(folder, s.Name)
	known, err := readObserved(dir)
	if err != nil {
		return err
	}
	for i := range s.Files {
		if err := s.Files[i].checkResults(ctx, dir, known); err != nil {
			return err
		}
	}
	return nil
}

// copyFile verifies the file in o.SourceFolder and copies or unpacks it.
func (f *File) copyFile(ctx context.Context, dir string, o Options) error {
	from := filepath.Join(o.SourceFolder, filepath.FromSlash(f.Name))
	if _, err := os.Stat(from); err != nil {
		if len(f.URLs) == 0 {
			return fmt.Errorf("%s: %s is not there", o.SourceFolder, f.Name)
		}
		return fmt.Errorf("%s: %s is not there; its address is %s", o.SourceFolder, f.Name, f.URLs[0])
	}
	if err := f.verifyFile(ctx, from); err != nil {
		return err
	}
	if f.Unpack != nil {
		return f.Unpack.unpackMembers(ctx, from, dir)
	}
	in, err := infile.Open(from)
	if err != nil {
		return err
	}
	defer in.Close()
	to := filepath.Join(dir, f.Name)
	return atomicfile.Write(to, func(w io.Writer) error {
		_, err := io.Copy(w, &contextReader{ctx, in})
		return err
	})
}

// downloadFile fetches the file from the first address that succeeds. It returns the proof that
// the file is complete, in words.
func (f *File) downloadFile(ctx context.Context, dir string, o Options) (proof string, err error) {
	if len(f.URLs) == 0 {
		return "", fmt.Errorf("%s: has no address", f.Name)
	}
	part := filepath.Join(dir, f.Name+partSuffix)
	var failures []error
	for _, url := range f.URLs {
		proof, err := f.receivePart(ctx, url, part, o)
		if errors.Is(err, errChanged) {
			removePart(part)
			proof, err = f.receivePart(ctx, url, part, o)
		}
		if err == nil {
			return proof, f.finishDownload(ctx, part, dir)
		}
		if ctx.Err() != nil {
			return "", context.Cause(ctx)
		}
		failures = append(failures, explainFailure(url, err))
	}
	return "", errors.Join(failures...)
}

// removePart removes an incomplete download and its origin.
func removePart(part string) {
	os.Remove(part)
	os.Remove(strings.TrimSuffix(part, partSuffix) + originSuffix)
}

// finishDownload verifies a complete download and renames or unpacks it. It removes the download
// and returns an error if verification fails.
func (f *File) finishDownload(ctx context.Context, part, dir string) error {
	if err := f.verifyFile(ctx, part); err != nil {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		removePart(part)
		return fmt.Errorf("what was fetched is removed: %w", err)
	}
	if f.Unpack != nil {
		err := f.Unpack.unpackMembers(ctx, part, dir)
		var path *fs.PathError
		var link *os.LinkError
		if err != nil && ctx.Err() == nil && !f.hasChecksum() && !errors.As(err, &path) && !errors.As(err, &link) {
			// The archive is at fault, not the target folder.
			removePart(part)
			return fmt.Errorf("what was fetched is removed: %w", err)
		}
		return err
	}
	return atomicfile.Replace(part, filepath.Join(dir, f.Name))
}

// receivePart downloads the missing bytes of part and syncs them to disk. It returns the proof
// that the part is complete, in words, or errChanged if the answer is another version.
func (f *File) receivePart(ctx context.Context, url, part string, o Options) (proof string, err error) {
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
	case f.Size > 0 && have == f.Size && f.hasChecksum():
		return "", nil // the checksum proves completeness
	case have > 0 && have == of.Bytes && of.rangeValidator() != "" && (f.Size == 0 || f.Size == have):
		return of.proofText(), nil
	case f.Size > 0 && have > f.Size, of.Bytes > 0 && have > of.Bytes, of.rangeValidator() == "" && !f.hasChecksum():
		have = 0 // nothing would prove a single version
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
		if v := of.rangeValidator(); v != "" {
			req.Header.Set("If-Range", v)
		}
	}
	// The client may have no limits.
	most := o.Limits.Connect + o.Limits.TLS + o.Limits.Header
	late := time.AfterFunc(most, func() { cancel(fmt.Errorf("no answer in %v", most)) })
	resp, err := o.Client.Do(req)
	late.Stop()
	if err != nil {
		return "", causeOf(ctx, err)
	}
	defer resp.Body.Close()
	end := int64(0) // end of the answer's bytes; 0: unknown
	total := int64(0)
	switch {
	case resp.StatusCode == http.StatusOK:
		have = 0
		total = max(resp.ContentLength, 0)
		end = total
		if total == 0 && f.Size == 0 && !f.hasChecksum() && !hasFramedEnd(resp) {
			return "", errors.New("the answer has no length, and no checksum is known: nothing would prove that it is whole")
		}
	case resp.StatusCode == http.StatusPartialContent && have > 0:
		var first, last int64
		if first, last, total, err = parseContentRange(resp.Header.Get("Content-Range")); err != nil {
			return "", err
		}
		if first != have {
			return "", fmt.Errorf("the answer begins at byte %d, %d was asked for", first, have)
		}
		if n := resp.ContentLength; n >= 0 && n != last-first+1 {
			return "", fmt.Errorf("the Content-Range has %d bytes, the Content-Length is %d", last-first+1, n)
		}
		if !of.isSameVersion(resp, total, f.hasChecksum()) {
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
		if have > 0 { // of describes the same version
			total = cmp.Or(total, of.Bytes)
		}
	}
	if have == 0 {
		of = originOf(url, resp, total)
		// Write the origin before the first byte.
		if err := os.Remove(part); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return "", err
		}
		if err := of.writeFile(originFile); err != nil {
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
	go o.Limits.cancelSlow(ctx, cancel, &got)
	body := io.TeeReader(io.LimitReader(resp.Body, limit-have+1), countingWriter(func(n int) {
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
		return "", causeOf(ctx, err)
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
	return of.proofText(), nil
}

// partSize returns the size of an incomplete download, 0 if there is none.
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

// hasFramedEnd reports whether the end of the answer differs from the end of its connection.
func hasFramedEnd(resp *http.Response) bool {
	return resp.ContentLength >= 0 || resp.ProtoMajor >= 2 || len(resp.TransferEncoding) > 0
}

// hasChecksum reports whether a checksum of the file is published.
func (f *File) hasChecksum() bool { return f.SHA256 != "" || f.MD5 != "" || f.ContentMD5 != "" }

// isPublished reports whether a checksum of a result is published.
func (f *File) isPublished(name string) bool {
	if f.Unpack == nil {
		return f.hasChecksum()
	}
	return slices.ContainsFunc(f.Unpack.Members, func(m Member) bool { return m.Name == name && m.MD5 != "" })
}

// causeOf returns the cause of ctx if ctx has ended, otherwise err.
func causeOf(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return err
}

// countingWriter is a writer that calls itself with the number of bytes written.
type countingWriter func(n int)

func (c countingWriter) Write(p []byte) (int, error) {
	c(len(p))
	return len(p), nil
}

// parseContentRange parses "bytes first-last/total"; a total of * gives 0. It returns an error if
// s is malformed.
func parseContentRange(s string) (first, last, total int64, err error) {
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

// ErrOffline is wrapped by errors about addresses that could not be reached.
var ErrOffline = errors.New("no connection")

// explainFailure wraps err with its address, and with ErrOffline if there was no connection.
func explainFailure(url string, err error) error {
	var dns *net.DNSError
	var op *net.OpError
	if errors.As(err, &dns) || errors.As(err, &op) && op.Op == "dial" {
		return fmt.Errorf("%s: %w: %w", url, ErrOffline, err)
	}
	return fmt.Errorf("%s: %w", url, err)
}
