package reproduce

import (
	"encoding/json"
	"fmt"
	"io"
	"runtime/debug"
	"time"
)

// Build says which code made a result.
type Build struct {
	Revision string `json:"revision,omitempty"` // commit; "": not recorded
	Time     string `json:"time,omitempty"`     // of the commit
	Modified bool   `json:"modified,omitempty"` // the tree had changes that no commit has
}

// ThisBuild returns what the compiler recorded of this program.
func ThisBuild() (b Build) {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return b
	}
	for _, s := range info.Settings {
		switch s.Key {
		case "vcs.revision":
			b.Revision = s.Value
		case "vcs.time":
			b.Time = s.Value
		case "vcs.modified":
			b.Modified = s.Value == "true"
		}
	}
	return b
}

// String returns the first nine characters of the commit.
func (b Build) String() string {
	if b.Revision == "" {
		return "not recorded"
	}
	text := b.Revision[:min(len(b.Revision), 9)]
	if b.Modified {
		text += " with changes"
	}
	return text
}

// Record is the result of a piece and how it came about, the content of its
// file.
type Record struct {
	Piece   string          `json:"piece"`
	Config  json.RawMessage `json:"config"`
	Build   Build           `json:"build"`
	Machine string          `json:"machine"`
	Started time.Time       `json:"started"`
	Seconds float64         `json:"seconds"`
	Result  json.RawMessage `json:"result"`
}

// recordLimit bounds the bytes of a record's file.
const recordLimit = 64 << 20

// readText reads the text of a record. It returns an error if the text is longer than a
// record can be.
func readText(r io.Reader) ([]byte, error) {
	data, err := io.ReadAll(io.LimitReader(r, recordLimit+1))
	if err == nil && len(data) > recordLimit {
		err = fmt.Errorf("is longer than the %d bytes of a result", recordLimit)
	}
	return data, err
}
