package wire

import (
	"github.com/coe-bridge/coe-bridge/restconf/tree"
	"github.com/coe-bridge/coe-bridge/yang"
)

// PointOf finds the entry that the entry at is placed before or after: point is a path
// below base, the request's target, or from the datastore. It is nil for other places.
func PointOf(schema *yang.Schema, base, at tree.Target, where, point string) (tree.Target, error) {
	if err := at.Ordered(); err != nil || !tree.NeedsPoint(where) {
		return nil, err
	}
	t, err := sibling(schema, base, at, point)
	if err != nil && !base.IsRoot() {
		if absolute, wrong := sibling(schema, nil, at, point); wrong == nil {
			return absolute, nil
		}
	}
	return t, err
}

func sibling(schema *yang.Schema, base, at tree.Target, point string) (tree.Target, error) {
	t, err := RFC8040.parseBelow(schema, base, point)
	if err == nil {
		err = at.CheckPoint(t)
	}
	return t, err
}
