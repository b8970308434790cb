package controller

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/coe-bridge/coe-bridge/mapping/backend/odl/codec"
)

func TestEscape(t *testing.T) {
	d := dialectOf(neon8040)
	require.Equal(t, "/rests/data/elan:elan-instances/elan-instance=fd00%3A%3A1%3Aa%2Fb%20%2Bc", d.entry(&codec.ListsOf(codec.Nested)[codec.ELANInstances], "fd00::1:a/b +c"))
	d = dialectOf(Draft02)
	require.Equal(t, "/restconf/config/ietf-interfaces:interfaces/interface/default%3Ap", d.entry(&codec.ListsOf(codec.Nested)[codec.Interfaces], "default:p"))
}
