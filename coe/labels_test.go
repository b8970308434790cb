package coe_test

import (
	"maps"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/coe-bridge/coe-bridge/coe"
)

func TestLabels(t *testing.T) {
	require.Equal(t, coe.Labels{}, coe.NewLabels(nil))
	require.Empty(t, maps.Collect(coe.Labels{}.All()))
	_, found := coe.Labels{}.Get("")
	require.False(t, found)

	in := map[string]string{"app": "web", "empty": "", "a": "b"}
	labels := coe.NewLabels(in)
	require.True(t, labels == coe.NewLabels(maps.Clone(in)))
	require.False(t, labels == coe.NewLabels(map[string]string{"app": "web"}))
	require.Equal(t, in, maps.Collect(labels.All()))
	for key, want := range in {
		value, found := labels.Get(key)
		require.True(t, found)
		require.Equal(t, want, value)
	}
	_, found = labels.Get("web")
	require.False(t, found, "a value is not a key")
}

func TestContainerPorts(t *testing.T) {
	http, dns := coe.ContainerPort{Name: "http", Protocol: "tcp", Port: 8080}, coe.ContainerPort{Name: "dns", Protocol: "udp", Port: 53}
	require.Equal(t, coe.ContainerPorts{}, coe.NewContainerPorts(coe.ContainerPort{Protocol: "tcp", Port: 80}), "a port without a name")
	require.Empty(t, slices.Collect(coe.ContainerPorts{}.All()))
	ports := coe.NewContainerPorts(http, dns, http)
	require.True(t, ports == coe.NewContainerPorts(dns, http))
	require.Equal(t, []coe.ContainerPort{dns, http}, slices.Collect(ports.All()))
}
