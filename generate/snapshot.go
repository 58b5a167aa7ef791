package generate

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"os"

	"github.com/farfield-ml/farfield/internal/atomicfile"
	"github.com/farfield-ml/farfield/model"
)

// A snapshot is, in little-endian order:
//
//	magic
//	uint32 version
//	uint64 length, that many bytes of JSON: snapshot
//	uint64 length, that many bytes: the snapshot of the session
//	[32]byte SHA-256 of everything before
const (
	magic   = "farfield generation"
	version = 1
)

type snapshot struct {
	Weights  string   `json:"weights_sha256"` // of the model
	Sampling Sampling `json:"sampling"`
	Drawn    uint64   `json:"drawn"`
	Pending  []int32  `json:"pending"` // tokens that the session has not seen
}

// Save writes the text in progress to a file.
func (g *Generator) Save(path string) error {
	data, err := g.appendBinary(nil)
	if err != nil {
		return err
	}
	return atomicfile.Write(path, func(w io.Writer) error {
		_, err := w.Write(data)
		return err
	})
}

func (g *Generator) appendBinary(b []byte) ([]byte, error) {
	text, err := json.Marshal(snapshot{weightSum(g.model), g.sampler.set, g.drawn, g.pending})
	if err != nil {
		return b, err
	}
	session, err := g.session.AppendBinary(nil)
	if err != nil {
		return b, err
	}
	start := len(b)
	b = append(b, magic...)
	b = binary.LittleEndian.AppendUint32(b, version)
	for _, part := range [][]byte{text, session} {
		b = binary.LittleEndian.AppendUint64(b, uint64(len(part)))
		b = append(b, part...)
	}
	sum := sha256.Sum256(b[start:])
	return append(b, sum[:]...), nil
}

// Load continues the text that Save wrote, to the same bits. A file that is
// damaged, of another version or of a model with other weights is an error.
func Load(path string, m *model.Model[float32]) (*Generator, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	g, err := restore(data, m)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return g, nil
}

func restore(data []byte, m *model.Model[float32]) (*Generator, error) {
	rest, ok := bytes.CutPrefix(data, []byte(magic))
	if !ok || len(rest) < 4+sha256.Size {
		return nil, errors.New("is not a snapshot of a generation")
	}
	if v := binary.LittleEndian.Uint32(rest); v != version {
		return nil, fmt.Errorf("version is %d, this program reads %d", v, version)
	}
	end := len(data) - sha256.Size
	if sum := sha256.Sum256(data[:end]); !bytes.Equal(sum[:], data[end:]) {
		return nil, fmt.Errorf("damaged: its SHA-256 is %.6x…, it says %.6x…", sum, data[end:])
	}
	text, rest, ok := cut(rest[4 : len(rest)-sha256.Size])
	if !ok {
		return nil, errors.New("ends within its header")
	}
	session, rest, ok := cut(rest)
	if !ok || len(rest) > 0 {
		return nil, errors.New("does not end with its session")
	}
	var s snapshot
	if err := json.Unmarshal(text, &s); err != nil {
		return nil, err
	}
	if sum := weightSum(m); s.Weights != sum {
		return nil, fmt.Errorf("is of a model with other weights: their SHA-256 is %.12s…, this model's %.12s…", s.Weights, sum)
	}
	g := &Generator{model: m, pending: s.Pending, drawn: s.Drawn}
	var err error
	if g.session, err = m.RestoreSession(session); err != nil {
		return nil, err
	}
	return g, g.SetSampling(s.Sampling)
}

// cut takes a length and that many bytes from the front of b.
func cut(b []byte) (part, rest []byte, ok bool) {
	if len(b) < 8 {
		return nil, b, false
	}
	n := binary.LittleEndian.Uint64(b)
	if n > uint64(len(b)-8) {
		return nil, b, false
	}
	return b[8:][:n], b[8+n:], true
}

// weightSum identifies the weights of a model.
func weightSum(m *model.Model[float32]) string {
	h := sha256.New()
	var b []byte
	for _, p := range m.Params().All() {
		b = append(b[:0], p.Name...)
		b = append(b, 0)
		for _, x := range p.Data {
			b = binary.LittleEndian.AppendUint32(b, math.Float32bits(x))
		}
		h.Write(b)
	}
	return hex.EncodeToString(h.Sum(nil))
}
