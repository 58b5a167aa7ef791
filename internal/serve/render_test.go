package serve

import (
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"

	"github.com/farfield-ml/farfield/internal/chat"
	"github.com/farfield-ml/farfield/internal/check"
)

// A template that makes much of little is refused, and few conversations take memory at a time.
func TestTemplatesTakeBoundedMemory(t *testing.T) {
	const source = "{% set n = namespace(x='a ') %}{% for i in range(24) %}{% set n.x = n.x ~ n.x %}{% endfor %}{% set a = n.x.split() %}"
	template, err := chat.Parse(source)
	if err != nil {
		t.Fatal(err)
	}
	s := newSite(t, func(o *Options) { o.Chat = &Chat{Template: template} })
	const clients = 6
	n := check.AllocatedBytes(func() {
		var wait sync.WaitGroup
		for range clients {
			wait.Go(func() {
				a, err := http.Post(s.URL+"/v1/chat/completions", "", strings.NewReader(`{"messages":[{"role":"user","content":"a"}]}`))
				if err != nil {
					t.Error(err)
					return
				}
				a.Body.Close()
				if a.StatusCode != 400 {
					t.Errorf("status %d, want 400", a.StatusCode)
				}
			})
		}
		wait.Wait()
	})
	if n > clients*(80<<20) {
		t.Errorf("%d requests take %d bytes", clients, n)
	}
	if got := cap(s.handler.renders); got > 2 {
		t.Errorf("%d conversations are rendered at a time", got)
	}
	if w := s.handler.o.Sessions.Stats().WorkBytes; w != 0 {
		t.Errorf("%d bytes are counted after all requests", w)
	}
}

func TestRenderingCountsBesideTheStates(t *testing.T) {
	template, err := chat.Parse("{{ messages[0].content }}{{ hold(1) }}")
	if err != nil {
		t.Fatal(err)
	}
	s := newSite(t, func(o *Options) { o.Chat = &Chat{Template: template} })
	manager := s.handler.o.Sessions
	const room = 1<<30 - 1<<19 // of the default, but for half of what a rendering takes at least
	if err := manager.Reserve(room); err != nil {
		t.Fatal(err)
	}
	var refused errorBody
	s.need(429, "POST", "/v1/chat/completions", `{"messages":[{"role":"user","content":"a"}]}`, &refused)
	if !strings.Contains(refused.Error.Message, fmt.Sprint("states take ", room)) {
		t.Errorf("error is %+v", refused)
	}
	manager.Release(room)
	s.need(400, "POST", "/v1/chat/completions", `{"messages":[{"role":"user","content":"a"}]}`, &refused)
	if want := "chat template: line 1: function hold is not supported"; !strings.Contains(refused.Error.Message, want) {
		t.Errorf("error is %+v, needs %q", refused, want)
	}
}
