package main

import (
	"context"

	"github.com/coe-bridge/coe-bridge/test/lab/nbwatch"
)

// rowWatch notes the times at which switch ports appear in a northbound database.
type rowWatch struct {
	*moments
	*nbwatch.Watch
}

func watchRows(ctx context.Context, endpoint string) (*rowWatch, error) {
	m := newMoments("rows")
	w, err := nbwatch.Start(ctx, endpoint, m.note)
	return &rowWatch{m, w}, err
}
