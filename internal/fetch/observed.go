package fetch

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"

	"github.com/farfield-ml/farfield/internal/atomicfile"
	"github.com/farfield-ml/farfield/internal/infile"
)

// observedFile is the file in a set's folder that records the digests of fetched files without
// published checksums.
const observedFile = "fetched.json"

const (
	observedFormat  = "farfield fetched files"
	observedVersion = 1
	maxObserved     = 1 << 20 // bytes of the file
)

// observations maps file names to observations.
type observations map[string]observation

// observation describes a fetched file. The empty observation marks a fetch that has not ended.
type observation struct {
	Bytes  int64  `json:"bytes"`
	SHA256 string `json:"sha256"`
	Proof  string `json:"complete_by"` // proof of completeness, in words
}

// observedContent is the content of observedFile.
type observedContent struct {
	Format  string       `json:"format"`
	Version int          `json:"version"`
	Files   observations `json:"files"`
}

// readObserved reads the observations in the folder of a set; none if there is no file. It
// returns an error if the file is malformed.
func readObserved(dir string) (observations, error) {
	path := filepath.Join(dir, observedFile)
	f, err := infile.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return observations{}, nil
	}
	if err != nil {
		return nil, err
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, maxObserved+1))
	if err != nil {
		return nil, err
	}
	o, err := parseObserved(text)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return o, nil
}

// parseObserved parses the content of observedFile.
func parseObserved(text []byte) (observations, error) {
	if len(text) > maxObserved {
		return nil, fmt.Errorf("has more than %d bytes", maxObserved)
	}
	var c observedContent
	if err := json.Unmarshal(text, &c); err != nil {
		return nil, err
	}
	switch {
	case c.Format != observedFormat:
		return nil, fmt.Errorf("format is %q, not %q", c.Format, observedFormat)
	case c.Version != observedVersion:
		return nil, fmt.Errorf("version is %d, this program reads %d", c.Version, observedVersion)
	case c.Files == nil:
		return observations{}, nil
	}
	return c.Files, nil
}

// writeObserved writes the observations if they have changed. It removes the file if there are
// none.
func writeObserved(dir string, o observations) error {
	there, err := readObserved(dir)
	if err == nil && maps.Equal(there, o) {
		return nil
	}
	if len(o) == 0 {
		err := os.Remove(filepath.Join(dir, observedFile))
		if errors.Is(err, fs.ErrNotExist) {
			err = nil
		}
		return err
	}
	text, err := json.MarshalIndent(observedContent{observedFormat, observedVersion, o}, "", "  ")
	if err != nil {
		return err
	}
	return atomicfile.WriteBytes(filepath.Join(dir, observedFile), append(text, '\n'))
}

// observeFile returns size and digest of a file, with a proof of completeness.
func observeFile(ctx context.Context, path, proof string) (observation, error) {
	f, err := infile.Open(path)
	if err != nil {
		return observation{}, err
	}
	defer f.Close()
	digest, n, err := hashReader(&contextReader{ctx, f}, sha256.New())
	return observation{n, digest, proof}, err
}

// verifyFile returns an error if a file differs from the observation.
func (o observation) verifyFile(ctx context.Context, path string) error {
	if o == (observation{}) {
		return fmt.Errorf("%s: its fetch did not end; fetch it once more", path)
	}
	got, err := observeFile(ctx, path, o.Proof)
	switch {
	case err != nil:
		return err
	case got.Bytes != o.Bytes:
		return fmt.Errorf("%s: it has %d bytes, had %d when it was fetched", path, got.Bytes, o.Bytes)
	case got.SHA256 != o.SHA256:
		return fmt.Errorf("%s: SHA-256 is %s, was %s when it was fetched", path, got.SHA256, o.SHA256)
	}
	return nil
}
