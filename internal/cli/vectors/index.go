package vectors

import (
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"slices"
	"strconv"

	"github.com/farfield-ml/farfield/internal/array"
	"github.com/farfield-ml/farfield/internal/atomicfile"
	"github.com/farfield-ml/farfield/internal/cli/records"
	"github.com/farfield-ml/farfield/internal/framed"
	"github.com/farfield-ml/farfield/internal/safetensors"
	"github.com/farfield-ml/farfield/internal/snapshot"
)

// An index is a .safetensors file of vectors that also has the digest of the text of each row, and
// metadata with the settings that made the vectors and a checksum.
const (
	digestsName  = "digests"
	indexKey     = "farfield index" // has the version
	settingsKey  = "settings"
	checksumKey  = "crc32c"
	indexVersion = "1"
)

// Digest is the SHA-256 of a text.
type Digest [sha256.Size]byte

// DigestText returns the digest of a text.
func DigestText(text string) Digest { return sha256.Sum256([]byte(text)) }

// Index is an open file of vectors, with a digest of the text of each.
type Index struct {
	Reader
	Settings []records.Setting // that made the vectors
	Digests  []Digest          // of the texts, a row each
}

// OpenIndex opens the index at path and verifies its checksum. It returns an error if the file
// cannot be read, is no index or is damaged.
func OpenIndex(path string) (*Index, error) {
	f, err := safetensors.Open(path)
	if err != nil {
		return nil, err
	}
	x, err := newIndex(f)
	if err != nil {
		f.Close()
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	x.Reader.(*stored).path = path
	return x, nil
}

// IsIndex reports whether the metadata of a .safetensors file is that of an index.
func IsIndex(f *safetensors.File) bool { return f.Metadata()[indexKey] != "" }

// newIndex returns the index that f holds, which the index closes.
func newIndex(f *safetensors.File) (*Index, error) {
	about := f.Metadata()
	if version := about[indexKey]; version == "" {
		return nil, errors.New("is no index that search writes")
	} else if version != indexVersion {
		return nil, fmt.Errorf("%s: version is %.20q, this program reads %s", indexKey, version, indexVersion)
	}
	x := &Index{}
	if err := json.Unmarshal([]byte(about[settingsKey]), &x.Settings); err != nil {
		return nil, fmt.Errorf("%s: %w", settingsKey, err)
	}
	if names := f.Names(); !slices.Equal(names, []string{ArrayName, digestsName}) {
		return nil, fmt.Errorf("has the arrays %.200q, an index has %s and %s", names, ArrayName, digestsName)
	}
	vectors, err := f.OpenStored(ArrayName)
	if err != nil {
		return nil, err
	}
	digests, err := f.ReadArray(digestsName)
	if err != nil {
		return nil, err
	}
	bytes, err := digests.Bytes()
	if shape := digests.Shape; err != nil || len(shape) != 2 || shape[1] != sha256.Size || vectors.DType != array.F4 || len(vectors.Shape) != 2 || vectors.Shape[0] != shape[0] {
		return nil, fmt.Errorf("%s %v of %v and %s %v do not belong together", ArrayName, vectors.Shape, vectors.DType, digestsName, digests.Shape)
	}
	r, err := newStored(ArrayName, vectors, f)
	if err != nil {
		return nil, err
	}
	x.Reader, x.Digests = r, make([]Digest, len(bytes)/sha256.Size)
	for i := range x.Digests {
		copy(x.Digests[i][:], bytes[i*sha256.Size:])
	}
	sum := sumDigests(x.Digests)
	block := make([]float32, max(1, 1<<18/r.Width())*r.Width())
	for {
		n, err := r.ReadRows(block)
		if err != nil {
			return nil, err
		}
		if n == 0 {
			break
		}
		sum = addFloats(sum, block[:n*r.Width()])
	}
	r.(*stored).readRows = 0
	if want := about[checksumKey]; formatSum(sum) != want {
		return nil, fmt.Errorf("is damaged: its checksum is %s, written as %.20q", formatSum(sum), want)
	}
	return x, nil
}

// WriteIndex writes vectors [rows,width] with the digests of their texts and the settings that made
// them. The file is written completely or not at all. WriteIndex returns an error if it cannot be
// written.
func WriteIndex(path string, settings []records.Setting, digests []Digest, vectors []float32, width int) error {
	made, err := json.Marshal(settings)
	if err != nil {
		return err
	}
	v, err := array.New(ArrayName, vectors, len(digests), width)
	if err != nil {
		return err
	}
	bytes := make([]uint8, 0, len(digests)*sha256.Size)
	for i := range digests {
		bytes = append(bytes, digests[i][:]...)
	}
	d, err := array.New(digestsName, bytes, len(digests), sha256.Size)
	if err != nil {
		return err
	}
	about := map[string]string{indexKey: indexVersion, settingsKey: string(made), checksumKey: formatSum(addFloats(sumDigests(digests), vectors))}
	return atomicfile.Write(path, func(w io.Writer) error {
		return safetensors.Write(w, []*array.Array{v, d}, about)
	})
}

// sumDigests returns the checksum of digests.
func sumDigests(digests []Digest) uint32 {
	sum := uint32(0)
	for i := range digests {
		sum = crc32.Update(sum, framed.Castagnoli, digests[i][:])
	}
	return sum
}

// addFloats returns the checksum of the bytes of sum followed by those of x in the file.
func addFloats(sum uint32, x []float32) uint32 {
	var b []byte
	for part := range slices.Chunk(x, 1<<12) {
		b = snapshot.AppendElements(b[:0], part)
		sum = crc32.Update(sum, framed.Castagnoli, b)
	}
	return sum
}

func formatSum(sum uint32) string { return strconv.FormatUint(uint64(sum), 16) }
