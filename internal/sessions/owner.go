package sessions

import "context"

// ownerKey is the key of an owner in a context.
type ownerKey struct{}

// WithOwner returns a context whose requests belong to an owner. An owner sees its own sessions and
// those without an owner; requests without an owner see all. Known prefixes are not shared between
// owners.
func WithOwner(ctx context.Context, owner string) context.Context {
	return context.WithValue(ctx, ownerKey{}, owner)
}

// ownerOf returns the owner of a context; "": none.
func ownerOf(ctx context.Context) string {
	owner, _ := ctx.Value(ownerKey{}).(string)
	return owner
}

// isVisible reports whether requests of an owner see s.
func (s *session) isVisible(owner string) bool {
	return s.owner == "" || owner == "" || s.owner == owner
}
