package fetch

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/farfield-ml/farfield/internal/atomicfile"
	"github.com/farfield-ml/farfield/internal/infile"
)

// Options says how a set is fetched.
type Options struct {
	Folder   string                               // of sets
	From     string                               // folder where the files are; "": their addresses
	Client   *http.Client                         // nil: one of its own
	Progress func(file string, done, total int64) // may be nil; total is 0 where it is not known
	Stall    time.Duration                        // without a byte for so long, an address is given up; 0: a minute
}

// partSuffix ends the names of downloads that are not whole; tagSuffix those of
// what the server called the version that they are of.
const (
	partSuffix = ".part"
	tagSuffix  = ".part.etag"
)

// sizeLimit is the most that is fetched of a file of unknown size.
const sizeLimit = 32 << 30

// Fetch brings the files of the set that are not there to the folder. One that was
// interrupted, by ctx or by the network, goes on where it ended when it is called
// again.
func (s *Set) Fetch(ctx context.Context, o Options) error {
	if len(s.Files) == 0 {
		return fmt.Errorf("data set %s: there is nothing to fetch", s.Name)
	}
	dir := filepath.Join(o.Folder, s.Name)
	if err := os.MkdirAll(dir, 0o777); err != nil {
		return err
	}
	if o.Client == nil {
		t := http.DefaultTransport.(*http.Transport).Clone()
		t.ResponseHeaderTimeout = time.Minute
		t.DisableCompression = true // a file of gzip is to stay one
		o.Client = &http.Client{Transport: t}
	}
	if o.Stall == 0 {
		o.Stall = time.Minute
	}
	if o.Progress == nil {
		o.Progress = func(string, int64, int64) {}
	}
	for i := range s.Files {
		f := &s.Files[i]
		if f.there(dir) {
			continue
		}
		var err error
		if o.From != "" {
			err = f.take(ctx, dir, o)
		} else {
			err = f.download(ctx, dir, o)
		}
		if err != nil {
			return fmt.Errorf("data set %s: %w", s.Name, err)
		}
		// What another address or an earlier call has left of it.
		os.Remove(filepath.Join(dir, f.Name+partSuffix))
		os.Remove(filepath.Join(dir, f.Name+tagSuffix))
	}
	return s.Verify(o.Folder)
}

// there reports whether what the file becomes is in the folder of the set, and is
// verified.
func (f *File) there(dir string) bool {
	for name := range f.results() {
		if _, err := os.Stat(filepath.Join(dir, filepath.FromSlash(name))); err != nil {
			return false
		}
	}
	return f.check(dir) == nil
}

// check verifies what the file has become.
func (f *File) check(dir string) error {
	if f.Unpack == nil {
		return f.verify(filepath.Join(dir, f.Name))
	}
	for _, m := range f.Unpack.Members {
		known := File{Size: m.Size, MD5: m.MD5}
		if m.MD5 == "" {
			known.Size = 0 // a bound
		}
		if err := known.verify(filepath.Join(dir, filepath.FromSlash(m.Name))); err != nil {
			return err
		}
	}
	return nil
}

// Verify holds the files of the set in a folder of sets against what is known of
// them. A set that is not fetched has nothing to verify.
func (s *Set) Verify(folder string) error {
	dir := filepath.Join(folder, s.Name)
	for i := range s.Files {
		if err := s.Files[i].check(dir); err != nil {
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
	if err := f.verify(from); err != nil {
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
		if _, err := io.Copy(w, in); err != nil {
			return err
		}
		return ctx.Err()
	})
}

// download fetches the file from the first address that gives it.
func (f *File) download(ctx context.Context, dir string, o Options) error {
	part := filepath.Join(dir, f.Name+partSuffix)
	var failures []error
	for _, url := range f.URLs {
		err := f.receive(ctx, url, part, o)
		if err == nil {
			return f.finish(ctx, part, dir)
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
		failures = append(failures, explain(url, err))
	}
	return errors.Join(failures...)
}

// finish verifies a whole download and gives it its name, or unpacks it. One that
// is not what it should be is removed.
func (f *File) finish(ctx context.Context, part, dir string) error {
	if err := f.verify(part); err != nil {
		os.Remove(part)
		os.Remove(strings.TrimSuffix(part, partSuffix) + tagSuffix)
		return fmt.Errorf("what was fetched is removed: %w", err)
	}
	if f.Unpack != nil {
		if err := f.Unpack.unpack(ctx, part, dir); err != nil {
			return err
		}
		return nil
	}
	return os.Rename(part, filepath.Join(dir, f.Name))
}

// receive appends to part what the address has beyond it, on the disk when it
// returns without an error.
func (f *File) receive(ctx context.Context, url, part string, o Options) error {
	have := int64(0)
	if info, err := os.Stat(part); err == nil {
		have = info.Size()
	}
	if f.Size > 0 && have == f.Size {
		return nil
	}
	tagFile := strings.TrimSuffix(part, partSuffix) + tagSuffix
	tag, _ := infile.ReadFile(tagFile)
	// Without a checksum two versions must not be joined: the server says which it was.
	if have > 0 && (f.Size > 0 && have > f.Size || len(tag) == 0 && !f.strong()) {
		have = 0
	}

	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	stall := time.AfterFunc(o.Stall, func() { cancel(fmt.Errorf("no byte in %v", o.Stall)) })
	defer stall.Stop()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	if have > 0 {
		req.Header.Set("Range", fmt.Sprintf("bytes=%d-", have))
		if len(tag) > 0 {
			req.Header.Set("If-Range", string(tag))
		}
	}
	resp, err := o.Client.Do(req)
	if err != nil {
		return because(ctx, err)
	}
	defer resp.Body.Close()
	total := int64(0)
	switch resp.StatusCode {
	case http.StatusOK:
		have = 0
		total = max(resp.ContentLength, 0)
	case http.StatusPartialContent:
		var first int64
		if first, total, err = contentRange(resp.Header.Get("Content-Range")); err != nil {
			return err
		}
		if first != have {
			return fmt.Errorf("the answer begins at byte %d, %d was asked for", first, have)
		}
	case http.StatusRequestedRangeNotSatisfiable:
		os.Remove(part)
		return fmt.Errorf("the server has no byte %d; what was there is removed", have)
	default:
		return fmt.Errorf("the server answers %s", resp.Status)
	}
	if f.Size > 0 && total > 0 && total != f.Size {
		return fmt.Errorf("the server has %d bytes, %d are known", total, f.Size)
	}
	out, err := os.OpenFile(part, os.O_WRONLY|os.O_CREATE, 0o666)
	if err != nil {
		return err
	}
	defer out.Close()
	if err := out.Truncate(have); err != nil {
		return err
	}
	if have == 0 {
		// A weak tag does not tell bytes apart.
		os.Remove(tagFile)
		if tag := resp.Header.Get("ETag"); tag != "" && !strings.HasPrefix(tag, "W/") {
			if err := os.WriteFile(tagFile, []byte(tag), 0o666); err != nil {
				return err
			}
		}
	}
	if _, err := out.Seek(have, io.SeekStart); err != nil {
		return err
	}
	if total == 0 {
		total = f.Size
	}
	most := total
	if most == 0 {
		most = sizeLimit
	}
	body := io.TeeReader(io.LimitReader(resp.Body, most-have+1), counted(func(n int) {
		stall.Reset(o.Stall)
		have += int64(n)
		o.Progress(f.Name, have, total)
	}))
	_, err = io.Copy(out, body)
	if syncErr := out.Sync(); err == nil {
		err = syncErr
	}
	switch {
	case err != nil:
		return because(ctx, err)
	case have > most:
		out.Close()
		os.Remove(part)
		return fmt.Errorf("the server sends more than %d bytes", most)
	case total > 0 && have < total:
		return fmt.Errorf("it ended after %d of %d bytes", have, total)
	}
	return nil
}

// strong reports whether a checksum would tell two versions apart.
func (f *File) strong() bool { return f.SHA256 != "" || f.MD5 != "" || f.ContentMD5 != "" }

// because returns why ctx ended, if that is why err came.
func because(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return err
}

// counted is a writer that tells how much was written.
type counted func(n int)

func (c counted) Write(p []byte) (int, error) {
	c(len(p))
	return len(p), nil
}

// contentRange reads "bytes first-last/total"; a total that is not told is 0.
func contentRange(s string) (first, total int64, err error) {
	bad := fmt.Errorf("the Content-Range is %.60q; bytes first-last/total is needed", s)
	rest, ok := strings.CutPrefix(s, "bytes ")
	span, all, ok2 := strings.Cut(rest, "/")
	from, to, ok3 := strings.Cut(span, "-")
	if !ok || !ok2 || !ok3 {
		return 0, 0, bad
	}
	if first, err = strconv.ParseInt(from, 10, 64); err != nil || first < 0 {
		return 0, 0, bad
	}
	last, err := strconv.ParseInt(to, 10, 64)
	if err != nil || last < first {
		return 0, 0, bad
	}
	if all == "*" {
		return first, 0, nil
	}
	if total, err = strconv.ParseInt(all, 10, 64); err != nil || total <= last {
		return 0, 0, bad
	}
	return first, total, nil
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
