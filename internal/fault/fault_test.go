package fault

import (
	"errors"
	"fmt"
	"io"
	"testing"
)

func TestMarkedErrorsKeepTheirTextAndTheirKind(t *testing.T) {
	err := fmt.Errorf("file: %w", Mark(ErrDamaged, io.ErrUnexpectedEOF))
	if err.Error() != "file: unexpected EOF" || !errors.Is(err, ErrDamaged) || !errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, ErrInUse) {
		t.Errorf("%v", err)
	}
	if Mark(ErrDamaged, nil) != nil {
		t.Error("nil is marked")
	}
}
