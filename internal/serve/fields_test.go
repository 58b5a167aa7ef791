package serve

import (
	"bytes"
	"encoding/json"
	"reflect"
	"testing"
)

// FuzzFields reads bodies of conversations. What a strict server reads, another reads to the same values, and errors
// of both are those of fields or of the body.
func FuzzFields(f *testing.F) {
	for _, body := range []string{
		`{"messages":[{"role":"user","content":"a","audio":null}],"n":1}`, `{"Messages":[{"ROLE":"user"}],"model":null}`, `{"messages":[1]}`,
		`{"messages":{"a":1},"x":[]}`, `{"stream_options":{"include_usage":1,"x":{}}}`, `{"x":{"y":[null]}}`, `{"stop":[ ],"a":1,"a":null}`, `[]`, `{`,
	} {
		f.Add([]byte(body))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		var loose, strict chatRequest
		looseErr, strictErr := parseJSON(data, &loose, false), parseJSON(data, &strict, true)
		if strictErr == nil && (looseErr != nil || !reflect.DeepEqual(loose, strict)) {
			t.Errorf("a strict server reads %+v, another %+v, %v", strict, loose, looseErr)
		}
		for _, err := range []error{looseErr, strictErr} {
			if err == nil {
				continue
			}
			if e := asAPIError(err, false); e.Status != 400 || e.Message == "" {
				t.Errorf("error is %+v", e)
			}
		}
		if looseErr == nil && strictErr == nil {
			if err := json.Unmarshal(data, new(chatRequest)); len(bytes.TrimSpace(data)) > 0 && err != nil {
				t.Errorf("package json refuses what is read: %v", err)
			}
		}
	})
}
