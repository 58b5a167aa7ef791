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

// errChanged reports that an answer is of another version than the part, or that
// nothing proves otherwise.
var errChanged = errors.New("the server has another version than before")

// origin is the version that a part is of, as the server described it.
type origin struct {
	URL      string `json:"url"`
	ETag     string `json:"etag,omitempty"`          // a strong one
	Modified string `json:"last_modified,omitempty"` // a strong one
	Bytes    int64  `json:"bytes,omitempty"`         // of the whole; 0: unknown
}

// originOf returns the origin of an answer of total bytes. A validator that two
// versions may share is left out (RFC 9110, 8.8): a weak ETag, and a Last-Modified
// less than a minute before the answer.
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

// validator returns what If-Range asks by; "" where there is nothing.
func (o origin) validator() string {
	if o.ETag != "" {
		return o.ETag
	}
	return o.Modified
}

// same reports whether a partial answer is of the version o. A server may ignore
// If-Range, so the answer's own validator is compared. Where a checksum follows,
// an answer without one is believed.
func (o origin) same(resp *http.Response, total int64, checked bool) bool {
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

// proof says what shows that a download without a checksum is whole.
func (o origin) proof() string {
	switch {
	case o.ETag != "":
		return "its length and ETag"
	case o.Modified != "":
		return "its length and Last-Modified"
	}
	return "its length"
}

// mostOrigin bounds the file of an origin.
const mostOrigin = 1 << 16

// readOrigin reads the origin of a part. What cannot be read is none: the download
// begins anew.
func readOrigin(path string) (o origin) {
	f, err := infile.Open(path)
	if err != nil {
		return origin{}
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, mostOrigin))
	if err != nil || json.Unmarshal(text, &o) != nil {
		return origin{}
	}
	return o
}

// write writes the origin to a file.
func (o origin) write(path string) error {
	text, err := json.Marshal(o)
	if err != nil {
		return err
	}
	return atomicfile.Write(path, func(w io.Writer) error {
		_, err := w.Write(append(text, '\n'))
		return err
	})
}
