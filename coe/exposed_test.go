package coe_test

import (
	"encoding/json"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/coe-bridge/coe-bridge/coe"
)

func TestPortRange(t *testing.T) {
	r, err := coe.ParsePortRange("30000-32767")
	require.NoError(t, err)
	require.Equal(t, "30000-32767", r.String())
	for port, in := range map[uint16]bool{0: false, 29999: false, 30000: true, 32767: true, 32768: false} {
		require.Equal(t, in, r.Contains(port), port)
	}
	require.False(t, coe.PortRange{}.Contains(0))
	require.Equal(t, "(none)", coe.PortRange{}.String())
	for _, bad := range []string{"", "30000", "0-1", "2-1", "1-65536", "1-2x", " 1-2", "01-2", "1 - 2", "-1-2"} {
		_, err := coe.ParsePortRange(bad)
		require.ErrorContains(t, err, "two ports in ascending order", "%q", bad)
	}
}

func TestParsePorts(t *testing.T) {
	ports, err := coe.ParsePorts([]string{"8000-8499", "80", "8500-8999"})
	require.NoError(t, err)
	require.Equal(t, []coe.PortRange{{80, 80}, {8000, 8999}}, ports)
	text, err := json.Marshal(ports)
	require.NoError(t, err)
	require.JSONEq(t, `["80-80", "8000-8999"]`, string(text))
	var again []coe.PortRange
	require.NoError(t, json.Unmarshal(text, &again))
	require.Equal(t, ports, again)
	require.Error(t, json.Unmarshal([]byte(`["80"]`), &again))

	for bad, says := range map[string]string{
		"": "want a port", "0": "want a port", "65536": "want a port", "http": "want a port", "2-1": "want a port", "80,443": "want a port",
		"80 79-81": "80-80 and 79-81 overlap",
	} {
		_, err := coe.ParsePorts(strings.Split(bad, " "))
		require.ErrorContains(t, err, says, "%q", bad)
	}
	var odd []string
	for port := 1; port < 300; port += 2 {
		odd = append(odd, strconv.Itoa(port))
	}
	_, err = coe.ParsePorts(odd)
	require.ErrorContains(t, err, "150 ranges of ports: want at most 100")
	require.False(t, coe.PortRange{}.Overlaps(coe.PortRange{First: 1, Last: 1}))
	require.True(t, coe.PortRange{First: 1, Last: 5}.Overlaps(coe.PortRange{First: 5, Last: 9}))
}
