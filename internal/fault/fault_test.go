package fault

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
)

func TestMarkedErrorsKeepTheirTextAndTheirKind(t *testing.T) {
	err := fmt.Errorf("file: %w", Mark(ErrDamaged, io.ErrUnexpectedEOF))
	if err.Error() != "file: unexpected EOF" || !errors.Is(err, ErrDamaged) || !errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, ErrInUse) {
		t.Errorf("%v", err)
	}
	if Mark(ErrDamaged, nil) != nil || MarkJSON(nil) != nil {
		t.Error("no error is marked")
	}
}

// The decoder of JSON has no error value for a field that it does not know.
func TestUnknownFieldsOfJSONAreMarked(t *testing.T) {
	for text, want := range map[string]bool{`{"a":1}`: true, `{"A":`: false, `[]`: false} {
		d := json.NewDecoder(strings.NewReader(text))
		d.DisallowUnknownFields()
		var x struct{}
		if err := MarkJSON(d.Decode(&x)); err == nil || errors.Is(err, ErrUnknownField) != want {
			t.Errorf("%s: %v", text, err)
		}
	}
}
