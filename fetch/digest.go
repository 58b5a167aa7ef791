package fetch

import (
	"context"
	"crypto/md5"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"hash"
	"io"
	"os"

	"github.com/farfield-ml/farfield/dataset"
	"github.com/farfield-ml/farfield/internal/infile"
)

// verify compares a file with what is published of it.
func (f *File) verify(ctx context.Context, path string) error {
	r, err := infile.Open(path)
	if err != nil {
		return err
	}
	defer r.Close()
	err = f.digest(ctx, r)
	if err == nil || f.ContentMD5 == "" || ctx.Err() != nil {
		return err
	}
	// What was compressed again has other bytes and the same content.
	if _, err := r.Seek(0, io.SeekStart); err != nil {
		return err
	}
	content, inflateErr := dataset.Inflate(&interruptible{ctx, r})
	if inflateErr != nil {
		return fmt.Errorf("%s: %w", path, inflateErr)
	}
	got, n, sumErr := sum(content, md5.New())
	if sumErr != nil {
		return fmt.Errorf("%s: %w", path, sumErr)
	}
	if got != f.ContentMD5 {
		return fmt.Errorf("%s: MD5 of its content, %d bytes, is %s, %s is known", path, n, got, f.ContentMD5)
	}
	return nil
}

// digest compares the bytes of a file with size and checksum. A file of which
// only the content is known fails.
func (f *File) digest(ctx context.Context, r *os.File) error {
	info, err := r.Stat()
	if err != nil {
		return err
	}
	if f.Size > 0 && info.Size() != f.Size {
		return fmt.Errorf("%s: it has %d bytes, %d are known", r.Name(), info.Size(), f.Size)
	}
	for _, k := range []struct {
		name, want string
		hash       hash.Hash
	}{{"SHA-256", f.SHA256, sha256.New()}, {"MD5", f.MD5, md5.New()}} {
		if k.want == "" {
			continue
		}
		got, _, err := sum(&interruptible{ctx, r}, k.hash)
		if err != nil {
			return err
		}
		if got != k.want {
			return fmt.Errorf("%s: %s is %s, %s is known", r.Name(), k.name, got, k.want)
		}
		return nil // the strongest is enough
	}
	if f.ContentMD5 != "" {
		return fmt.Errorf("%s: its content is to be verified", r.Name())
	}
	return nil
}

func sum(r io.Reader, h hash.Hash) (hexadecimal string, n int64, err error) {
	n, err = io.Copy(h, r)
	return hex.EncodeToString(h.Sum(nil)), n, err
}
