package port_test

import (
	"net"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/coe-bridge/coe-bridge/test/lab/port"
)

func TestReservedPort(t *testing.T) {
	p, err := port.Reserve()
	require.NoError(t, err)
	_, err = net.Dial("tcp", p.String())
	require.ErrorIs(t, err, syscall.ECONNREFUSED, "nobody listens")
	_, err = net.Listen("tcp", p.String())
	require.ErrorIs(t, err, syscall.EADDRINUSE, "nobody else gets it")
	require.NoError(t, p.Release())
	require.NoError(t, p.Release())
}
