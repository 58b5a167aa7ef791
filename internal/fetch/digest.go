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

	"github.com/farfield-ml/farfield/internal/dataset"
	"github.com/farfield-ml/farfield/internal/infile"
)

// verifyFile checks size and published checksum of a file. It returns an error if one differs or
// the file cannot be read.
func (f *File) verifyFile(ctx context.Context, path string) error {
	r, err := infile.Open(path)
	if err != nil {
		return err
	}
	defer r.Close()
	err = f.verifyBytes(ctx, r)
	if err == nil || f.ContentMD5 == "" || ctx.Err() != nil {
		return err
	}
	// A recompressed file has other bytes and the same content.
	if _, err := r.Seek(0, io.SeekStart); err != nil {
		return err
	}
	content, inflateErr := dataset.Inflate(&contextReader{ctx, r})
	if inflateErr != nil {
		return fmt.Errorf("%s: %w", path, inflateErr)
	}
	got, n, sumErr := hashReader(content, md5.New())
	if sumErr != nil {
		return fmt.Errorf("%s: %w", path, sumErr)
	}
	if got != f.ContentMD5 {
		return fmt.Errorf("%s: MD5 of its content, %d bytes, is %s, %s is known", path, n, got, f.ContentMD5)
	}
	return nil
}

// verifyBytes checks size and strongest checksum of a file's bytes. It returns an error if one
// differs, or if only the checksum of the content is known.
func (f *File) verifyBytes(ctx context.Context, r *os.File) error {
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
		got, _, err := hashReader(&contextReader{ctx, r}, k.hash)
		if err != nil {
			return err
		}
		if got != k.want {
			return fmt.Errorf("%s: %s is %s, %s is known", r.Name(), k.name, got, k.want)
		}
		return nil // the strongest checksum suffices
	}
	if f.ContentMD5 != "" {
		return fmt.Errorf("%s: its content is to be verified", r.Name())
	}
	return nil
}

// hashReader returns the digest of r by h, and its length.
func hashReader(r io.Reader, h hash.Hash) (hexadecimal string, n int64, err error) {
	n, err = io.Copy(h, r)
	return hex.EncodeToString(h.Sum(nil)), n, err
}
