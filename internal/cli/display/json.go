package display

import (
	"bytes"
	"encoding/json"
	"io"
	"math"
)

// PrintJSON prints v as indented JSON with control characters escaped. It returns an
// error if v has no JSON or w fails.
func PrintJSON(w io.Writer, v any) error {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", "  ")
	if err := enc.Encode(v); err != nil {
		return err
	}
	_, err := w.Write(EscapeJSON(b.Bytes()))
	return err
}

// Number is a number that JSON writes as null if it is not finite.
type Number float64

// MarshalJSON returns x as a number, or null if x is not finite. The error is nil.
func (x Number) MarshalJSON() ([]byte, error) {
	if math.IsInf(float64(x), 0) || math.IsNaN(float64(x)) {
		return []byte("null"), nil
	}
	return json.Marshal(float64(x))
}

// PrintJSONLine prints v as JSON on one line. It returns an error if v has no JSON or w
// fails.
func PrintJSONLine(w io.Writer, v any) error {
	enc := json.NewEncoder(w)
	enc.SetEscapeHTML(false)
	return enc.Encode(v)
}
