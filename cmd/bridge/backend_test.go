package bridge

import (
	"fmt"
	"log/slog"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/coe-bridge/coe-bridge/mapping"
	"github.com/coe-bridge/coe-bridge/mapping/backend/odl"
	"github.com/coe-bridge/coe-bridge/mapping/backend/ovn"
	"github.com/coe-bridge/coe-bridge/mapping/netvirt"
)

// TestLimits: network policies are enforced by a backend that has ACLs, and the place of clients counts
// where the backend has services.
func TestLimits(t *testing.T) {
	all := netvirt.NewKindSet(netvirt.Kinds()...)
	require.Equal(t, netvirt.Limits{}, limits(BackendConfig{Name: "memory"}, all))
	require.Equal(t, ovn.LayoutELAN.Limits(), limits(BackendConfig{Name: "ovn"}, all))
	node := BackendConfig{Name: "ovn", OVN: ovn.Config{Layout: ovn.LayoutNode}}
	require.True(t, limits(node, all).NodeGateways)
	require.Equal(t, odl.Limits(), limits(BackendConfig{Name: "odl"}, all))
	require.Equal(t, netvirt.Limits{NoACLs: true, NoPlaces: true, NoGateways: true}, limits(BackendConfig{Name: "memory"}, netvirt.NewKindSet(netvirt.KindInterface)))
}

// TestLayouts: without a layout of OVN, backends have the one that follows from the isolation. They keep the
// layout of the earlier version that has created the datastore.
func TestLayouts(t *testing.T) {
	for _, c := range []struct {
		isolation mapping.Isolation
		defaults  string
		want      ovn.Layout
		reason    string
	}{
		{mapping.IsolationNone, layoutNode, ovn.LayoutNode, "the default with --isolation none"},
		{mapping.IsolationNamespace, layoutNode, ovn.LayoutELAN, "the default with --isolation namespace"},
		{mapping.IsolationNone, "", ovn.LayoutELAN, "an earlier version has created the datastore"},
		{mapping.IsolationNamespace, "", ovn.LayoutELAN, "the default with --isolation namespace"},
	} {
		named := BackendConfig{Name: "ovn", OVN: ovn.Config{Layout: ovn.LayoutNode}}
		filled := []BackendConfig{{Name: "odl"}, named}
		var log strings.Builder
		cfg := Config{
			Mapping: mapping.Settings{Isolation: c.isolation}, Backend: BackendConfig{Name: "ovn"}, Filled: filled, Log: slog.New(slog.NewTextHandler(&log, nil)),
		}
		cfg.setLayouts(c.defaults)
		require.Equal(t, c.want, cfg.Backend.OVN.Layout)
		require.Equal(t, named, cfg.Filled[1])
		require.Empty(t, filled[0].OVN.Layout)
		lines := strings.Split(strings.TrimSpace(log.String()), "\n")
		require.Len(t, lines, 2)
		require.Contains(t, lines[0], fmt.Sprintf("layout=%s reason=%q", c.want, c.reason))
		require.Contains(t, lines[1], "layout=node reason=--ovn-layout")
	}
}
