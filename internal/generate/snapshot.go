package generate

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"math"

	"github.com/farfield-ml/farfield/internal/atomicfile"
	"github.com/farfield-ml/farfield/internal/fault"
	"github.com/farfield-ml/farfield/internal/framed"
	"github.com/farfield-ml/farfield/internal/infile"
	"github.com/farfield-ml/farfield/model"
	"github.com/farfield-ml/farfield/nn"
)

// A snapshot is a framed file of two parts: a snapshot in JSON, and the snapshot of
// the session.
var format = framed.Format{Name: "generation", Magic: Magic, Version: 1, Sum: framed.SHA256}

const Magic = "farfield generation" // first bytes of the file of a text in progress

// generatorSnapshot is the JSON part of a snapshot.
type generatorSnapshot struct {
	Weights     string   `json:"weights_sha256"`      // checksum of the model
	Precision   string   `json:"precision,omitempty"` // of its weights; "": f32
	Sampling    Sampling `json:"sampling"`
	TokensDrawn uint64   `json:"drawn"`
	Pending     []int32  `json:"pending"` // tokens not yet in the session

	Window  int     `json:"window,omitempty"`  // tokens; 0: the session has the whole text
	Begin   []int32 `json:"begin,omitempty"`   // tokens before each window but the first
	History []int32 `json:"history,omitempty"` // tokens of the text in the window
	Dropped int64   `json:"dropped,omitempty"` // tokens before it
}

// Save writes the text in progress to a file, atomically. It returns an error if the file cannot be
// written or a number of the text is not finite. It also does for a generator that NewTarget
// returned, since the keys of a source are not saved.
func (g *Generator) Save(path string) error {
	data, err := g.appendBinary(nil)
	if err != nil {
		return err
	}
	return atomicfile.WriteBytes(path, data)
}

// appendBinary appends the snapshot of the text to b.
func (g *Generator) appendBinary(b []byte) ([]byte, error) {
	if g.failure != nil {
		return b, g.failure
	}
	text, err := json.Marshal(generatorSnapshot{g.model.WeightSum(), precisionName(g.model), g.sampler.settings, g.tokensDrawn, g.pending, g.window, g.begin, g.history, g.dropped})
	if err != nil {
		return b, err
	}
	size := len(text) + int(g.session.SnapshotBytes())
	return format.AppendParts(b, size, framed.Part(text), g.session.AppendBinary)
}

// Header is the part of a snapshot that can be read without the model.
type Header struct {
	Weights     string   `json:"weights_sha256"` // checksum of the model
	Precision   string   `json:"precision"`      // precision of the weights
	Sampling    Sampling `json:"sampling"`
	TokensDrawn uint64   `json:"tokens_drawn"`
}

// precisionName returns how the weights of a model are held, as snapshots have it.
func precisionName(m *model.Model) string {
	if p := m.Precision(); p != nn.Float32 {
		return p.String()
	}
	return ""
}

// maxHeaderBytes bounds the JSON part of a snapshot.
const maxHeaderBytes = 1 << 26

// ReadHeader reads the header of the snapshot of size bytes in r. It returns an error if the file
// has another format or version, or does not match its SHA-256.
func ReadHeader(r io.ReaderAt, size int64) (h Header, err error) {
	text, _, err := format.ReadFirst(r, size, maxHeaderBytes)
	if err != nil {
		return h, err
	}
	var s generatorSnapshot
	err = json.Unmarshal(text, &s)
	return Header{s.Weights, cmp.Or(s.Precision, nn.Float32.String()), s.Sampling, s.TokensDrawn}, err
}

// LoadGenerator returns the text that Save wrote to the file, to be continued to the same bits. It
// returns an error if m is nil, or if the file is damaged, of another version, or of a model with
// other weights.
func LoadGenerator(path string, m *model.Model) (*Generator, error) {
	if m == nil {
		return nil, errNoModel
	}
	data, err := infile.ReadFile(path)
	if err != nil {
		return nil, err
	}
	g, err := restoreGenerator(data, m)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return g, nil
}

// restoreGenerator reads the snapshot of a text.
func restoreGenerator(data []byte, m *model.Model) (*Generator, error) {
	parts, err := format.ReadParts(data, 2)
	if err != nil {
		return nil, err
	}
	var s generatorSnapshot
	if err := json.Unmarshal(parts[0], &s); err != nil {
		return nil, err
	}
	if own := precisionName(m); s.Precision != own {
		f32 := nn.Float32.String()
		return nil, fault.Mark(fault.ErrMismatch, fmt.Errorf("is of a model whose weights are held as %s, this model's are %s", cmp.Or(s.Precision, f32), cmp.Or(own, f32)))
	}
	if sum := m.WeightSum(); s.Weights != sum {
		return nil, fault.Mark(fault.ErrMismatch, fmt.Errorf("is of a model with other weights: their SHA-256 is %.12s…, this model's %.12s…", s.Weights, sum))
	}
	session, err := m.RestoreSession(parts[1])
	g, err := startGenerator(m, session, err, s.Sampling)
	if err != nil {
		return nil, err
	}
	if n := session.Batch(); n != 1 {
		return nil, fmt.Errorf("session: has %d sequences, a text is one", n)
	}
	if session.Tokens() > 0 && len(s.Pending) == 0 {
		return nil, fmt.Errorf("pending: there is no token behind the %d of the session", session.Tokens())
	}
	for i, id := range s.Pending {
		if id < 0 || int(id) >= m.Config().Vocab {
			return nil, fmt.Errorf("pending: token %d is %d, the vocabulary has %d", i, id, m.Config().Vocab)
		}
	}
	g.pending, g.tokensDrawn = s.Pending, s.TokensDrawn
	g.window, g.begin, g.history, g.dropped = s.Window, s.Begin, s.History, s.Dropped
	return g, g.checkHistory()
}

// checkHistory returns an error if the window of a restored text does not fit its session.
func (g *Generator) checkHistory() error {
	c, n := g.model.Config(), int64(len(g.history))
	if err := checkWindow(c, g.window, g.begin); err != nil {
		return err
	}
	if g.window == 0 {
		if n > 0 || g.dropped != 0 {
			return fmt.Errorf("history: has %d tokens behind %d, the session has no window", n, g.dropped)
		}
		return nil
	}
	for i, id := range g.history {
		if id < 0 || int(id) >= c.Vocab {
			return fmt.Errorf("history: token %d is %d, the model has %d", i, id, c.Vocab)
		}
	}
	if g.dropped > math.MaxInt64/2 || g.dropped != g.windowStart(g.dropped+n) {
		return fmt.Errorf("history: has %d tokens behind %d, which are no window of %d", n, g.dropped, g.window)
	}
	if g.dropped > 0 {
		n += int64(len(g.begin))
	}
	if n != g.session.Tokens() {
		return fmt.Errorf("history: has %d tokens, the session %d", n, g.session.Tokens())
	}
	return nil
}
