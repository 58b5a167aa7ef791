package fetch

import (
	"archive/tar"
	"archive/zip"
	"compress/gzip"
	"context"
	"crypto/md5"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/farfield-ml/farfield/internal/atomicfile"
	"github.com/farfield-ml/farfield/internal/infile"
)

// unpackMembers writes the members of a zip or gzipped tar to the set's folder, under the names in
// Members. Paths in the archive do not influence where files are written. unpackMembers returns an
// error if a member is missing or ambiguous, if its size or checksum differs, or if the archive is
// damaged; in the last case it removes members that have no checksum.
func (a *Archive) unpackMembers(ctx context.Context, archive, dir string) (err error) {
	if a.convert != nil {
		return a.convert(ctx, archive, dir)
	}
	f, err := infile.Open(archive)
	if err != nil {
		return err
	}
	defer f.Close()
	var magic [2]byte
	if _, err := io.ReadFull(f, magic[:]); err != nil {
		return fmt.Errorf("%s: %w", archive, err)
	}
	if _, err := f.Seek(0, io.SeekStart); err != nil {
		return err
	}
	found := make([]bool, len(a.Members))
	var unproven []string
	defer func() {
		if err != nil {
			for _, path := range unproven {
				os.Remove(path)
			}
		}
	}()
	take := func(name string, r io.Reader) error {
		i := slices.IndexFunc(a.Members, func(m Member) bool { return m.matchesPath(name) })
		if i < 0 {
			return nil
		}
		if found[i] {
			return fmt.Errorf("member %.200q: another one is %s, too", name, a.Members[i].Name)
		}
		found[i] = true
		err := a.Members[i].writeFile(ctx, dir, r)
		if err == nil && a.Members[i].MD5 == "" {
			unproven = append(unproven, filepath.Join(dir, filepath.FromSlash(a.Members[i].Name)))
		}
		return err
	}
	if string(magic[:]) == "PK" {
		err = eachZipMember(ctx, f, take)
	} else {
		err = eachTarMember(&contextReader{ctx, f}, take)
	}
	if err != nil {
		return fmt.Errorf("%s: %w", archive, err)
	}
	for i, m := range a.Members {
		if !found[i] {
			return fmt.Errorf("%s: it has no member %s", archive, m.Path)
		}
	}
	return nil
}

// matchesPath reports whether a path in the archive is member m.
func (m *Member) matchesPath(name string) bool {
	name = strings.TrimPrefix(name, "./")
	if suffix, ok := strings.CutPrefix(m.Path, "*"); ok {
		return strings.HasSuffix("/"+name, suffix)
	}
	return name == m.Path
}

// writeFile writes the member to dir. It returns an error if size or checksum differ.
func (m *Member) writeFile(ctx context.Context, dir string, r io.Reader) error {
	path := filepath.Join(dir, filepath.FromSlash(m.Name))
	if err := atomicfile.MakeFolder(filepath.Dir(path)); err != nil {
		return err
	}
	return atomicfile.Write(path, func(w io.Writer) error {
		h := md5.New()
		n, err := io.Copy(io.MultiWriter(w, h), io.LimitReader(r, m.Size+1))
		if err != nil {
			return fmt.Errorf("member %s: %w", m.Path, err)
		}
		if n > m.Size || m.MD5 != "" && n < m.Size {
			return fmt.Errorf("member %s: it has %d bytes or more, %d are known", m.Path, n, m.Size)
		}
		if got := hex.EncodeToString(h.Sum(nil)); m.MD5 != "" && got != m.MD5 {
			return fmt.Errorf("member %s: MD5 is %s, %s is known", m.Path, got, m.MD5)
		}
		return nil
	})
}

// contextReader reads r until ctx ends.
type contextReader struct {
	ctx context.Context
	r   io.Reader
}

func (i *contextReader) Read(p []byte) (int, error) {
	if i.ctx.Err() != nil {
		return 0, context.Cause(i.ctx)
	}
	return i.r.Read(p)
}

// contextReaderAt reads r until ctx ends.
type contextReaderAt struct {
	ctx context.Context
	r   io.ReaderAt
}

func (i *contextReaderAt) ReadAt(p []byte, at int64) (int, error) {
	if i.ctx.Err() != nil {
		return 0, context.Cause(i.ctx)
	}
	return i.r.ReadAt(p, at)
}

// zipMembers bounds the number of members of a zip.
const zipMembers = 1 << 16

// eachZipMember calls take with each regular file of a zip.
func eachZipMember(ctx context.Context, f *os.File, take func(name string, r io.Reader) error) error {
	info, err := f.Stat()
	if err != nil {
		return err
	}
	z, err := zip.NewReader(&contextReaderAt{ctx, f}, info.Size())
	if err != nil && !errors.Is(err, zip.ErrInsecurePath) {
		return err
	}
	if len(z.File) > zipMembers {
		return fmt.Errorf("it has %d members, at most %d are read", len(z.File), zipMembers)
	}
	for _, m := range z.File {
		if !m.Mode().IsRegular() {
			continue
		}
		r, err := m.Open()
		if err != nil {
			return fmt.Errorf("member %.200q: %w", m.Name, err)
		}
		err = take(m.Name, r)
		r.Close()
		if err != nil {
			return err
		}
	}
	return nil
}

// eachTarMember calls take with each regular file of a gzipped tar.
func eachTarMember(r io.Reader, take func(name string, r io.Reader) error) error {
	z, err := gzip.NewReader(r)
	if err != nil {
		return err
	}
	t := tar.NewReader(z)
	for {
		h, err := t.Next()
		if err == io.EOF { // of the tar; gzip has its checksum after it
			_, err := io.Copy(io.Discard, z)
			return err
		}
		if err != nil && !errors.Is(err, tar.ErrInsecurePath) {
			return err
		}
		if h.Typeflag != tar.TypeReg {
			continue
		}
		if err := take(h.Name, t); err != nil {
			return err
		}
	}
}
