package score

import (
	"os"

	"github.com/farfield-ml/farfield/internal/cli/display"
	"github.com/farfield-ml/farfield/score"
)

// InspectScored describes how far score has read a text. It returns an error if the
// file is invalid.
func InspectScored(file *os.File, size int64) (*display.Finding, error) {
	var place scorePlace
	weights, err := score.ReadNote(file, size, &place)
	if err != nil {
		return nil, err
	}
	f := &display.Finding{Kind: "text that is scored"}
	f.Add("lines", place.Number)
	f.Add("bytes", place.Offset)
	f.AddText("bits per byte", place.Total.PerByte(), "%.4f", place.Total.PerByte())
	f.Add("weights sha256", weights)
	return f, nil
}

// FileMagic begins the file of a text that is scored.
const FileMagic = score.Magic
