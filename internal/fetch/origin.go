package fetch

import (
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"strings"
	"time"

	"github.com/farfield-ml/farfield/internal/atomicfile"
	"github.com/farfield-ml/farfield/internal/infile"
)

// errChanged is the error of an answer that is not provably the version of the part.
var errChanged = errors.New("the server has another version than before")

// origin identifies the version of a part, as the server described it.
type origin struct {
	URL      string `json:"url"`
	ETag     string `json:"etag,omitempty"`          // strong
	Modified string `json:"last_modified,omitempty"` // strong
	Bytes    int64  `json:"bytes,omitempty"`         // complete size; 0: unknown
}

// originOf returns the origin of an answer of total bytes. It omits weak validators (RFC 9110,
// 8.8): a weak ETag, and a Last-Modified less than a minute before the answer.
func originOf(url string, resp *http.Response, total int64) origin {
	o := origin{URL: url, Bytes: total}
	if tag := resp.Header.Get("ETag"); strings.HasPrefix(tag, `"`) {
		o.ETag = tag
	}
	modified, err := http.ParseTime(resp.Header.Get("Last-Modified"))
	date, dateErr := http.ParseTime(resp.Header.Get("Date"))
	if err == nil && dateErr == nil && date.Sub(modified) >= time.Minute {
		o.Modified = resp.Header.Get("Last-Modified")
	}
	return o
}

// rangeValidator returns the value of If-Range, or "" if there is none.
func (o origin) rangeValidator() string {
	if o.ETag != "" {
		return o.ETag
	}
	return o.Modified
}

// isSameVersion reports whether a partial answer is version o. It compares the answer's own
// validator, since a server may ignore If-Range. checked says that a checksum follows; then an
// answer without validator is accepted.
func (o origin) isSameVersion(resp *http.Response, total int64, checked bool) bool {
	if o.Bytes > 0 && total > 0 && o.Bytes != total {
		return false
	}
	name, want := "Last-Modified", o.Modified
	if o.ETag != "" {
		name, want = "ETag", o.ETag
	}
	got := resp.Header.Get(name)
	if want == "" || got == "" {
		return checked
	}
	return got == want && (checked || o.Bytes > 0 || total > 0)
}

// proofText describes the proof that a download without checksum is complete.
func (o origin) proofText() string {
	switch {
	case o.ETag != "":
		return "its length and ETag"
	case o.Modified != "":
		return "its length and Last-Modified"
	}
	return "its length"
}

// maxOrigin bounds the bytes of an origin's file.
const maxOrigin = 1 << 16

// readOrigin reads the origin of a part. It returns an empty origin if the file cannot be read;
// the download then restarts.
func readOrigin(path string) (o origin) {
	f, err := infile.Open(path)
	if err != nil {
		return origin{}
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, maxOrigin))
	if err != nil || json.Unmarshal(text, &o) != nil {
		return origin{}
	}
	return o
}

// writeFile writes the origin to a file.
func (o origin) writeFile(path string) error {
	text, err := json.Marshal(o)
	if err != nil {
		return err
	}
	return atomicfile.WriteBytes(path, append(text, '\n'))
}
