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

// observedFile is in the folder of a set. It has the digests of files of which none is
// published, as they were when they were fetched.
const observedFile = "fetched.json"

const (
	observedFormat  = "farfield fetched files"
	observedVersion = 1
	mostObserved    = 1 << 20 // bytes of the file
)

// observed is what was observed of files, by their names in the folder.
type observed map[string]observation

// observation is a file as it was when it was fetched. The empty observation marks a
// file whose fetch has begun and has not ended.
type observation struct {
	Bytes  int64  `json:"bytes"`
	SHA256 string `json:"sha256"`
	Proof  string `json:"complete_by"` // what proved that it is whole
}

type observedContent struct {
	Format  string   `json:"format"`
	Version int      `json:"version"`
	Files   observed `json:"files"`
}

// readObserved reads what was observed of the files in the folder of a set; nothing
// where there is no file.
func readObserved(dir string) (observed, error) {
	path := filepath.Join(dir, observedFile)
	f, err := infile.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return observed{}, nil
	}
	if err != nil {
		return nil, err
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, mostObserved+1))
	if err != nil {
		return nil, err
	}
	o, err := parseObserved(text)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return o, nil
}

// parseObserved reads the content of the file.
func parseObserved(text []byte) (observed, error) {
	if len(text) > mostObserved {
		return nil, fmt.Errorf("has more than %d bytes", mostObserved)
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
		return observed{}, nil
	}
	return c.Files, nil
}

// writeObserved writes what was observed, unless it is there already. Nothing observed
// has no file.
func writeObserved(dir string, o observed) error {
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
	return atomicfile.Write(filepath.Join(dir, observedFile), func(w io.Writer) error {
		_, err := w.Write(append(text, '\n'))
		return err
	})
}

// observe returns the size and digest of a file.
func observe(ctx context.Context, path, proof string) (observation, error) {
	f, err := infile.Open(path)
	if err != nil {
		return observation{}, err
	}
	defer f.Close()
	digest, n, err := sum(&interruptible{ctx, f}, sha256.New())
	return observation{n, digest, proof}, err
}

// verify compares a file with what was observed of it.
func (o observation) verify(ctx context.Context, path string) error {
	if o == (observation{}) {
		return fmt.Errorf("%s: its fetch did not end; fetch it once more", path)
	}
	got, err := observe(ctx, path, o.Proof)
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
