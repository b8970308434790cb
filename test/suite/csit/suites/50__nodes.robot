*** Settings ***
Documentation       Nodes.
Resource            ../resources/entries.resource
Resource            ../resources/netvirt.resource

Suite Setup         Begin Without Entries
Test Teardown       Remove All Entries

Test Tags           nodes


*** Variables ***
&{NODES}                path=coe-netvirt:nodes    list=node    key=address
${NODE_WITHOUT_PODS}    192.168.33.15


*** Test Cases ***
A Node Can Be Created And Deleted In Draft-02
    [Tags]    odl
    Create Replace And Delete Entry    ${DRAFT02}    ${NODE}

A Node Can Be Created And Deleted In RFC 8040
    Create Replace And Delete Entry    ${RFC8040}    ${NODE}

A Node Can Be Sent As XML
    Write Entry As XML    ${DRAFT02}    ${NODE}
    Request    DELETE    ${DRAFT02.data}/${NODE.container}    expected=200
    Write Entry As XML    ${RFC8040}    ${NODE}

The Model Has The Node With Its Address
    [Documentation]    No other test has a pod on this node: with one switch per node, a node stays while it has a block of addresses.
    ${body}=    Body    node.json
    ${body}=    Evaluate    $body.replace($NODE_ADDRESS, $NODE_WITHOUT_PODS)
    Request    POST    ${DRAFT02.data}/${NODE.container}    ${body}    expected=204
    ${object}=    Wait For Object    ${NODES}    ${NODE_WITHOUT_PODS}
    Should Be Equal    ${object}[host-name]    node1
    Request    DELETE    ${DRAFT02.data}/${NODE.container}/k8s-nodes/${NODE_UID}    expected=200
    Wait For Removal    ${NODES}    ${NODE_WITHOUT_PODS}

The Ports Of Pods Request The Node's Chassis
    [Tags]    ovn
    FOR    ${entity}    IN    ${NODE}    ${POD}
        ${body}=    Body    ${entity.body}
        Post    ${DRAFT02}    ${entity}    ${body}    204
    END
    Wait For Confirmation    ${INTERFACES}    ${NAMESPACE}:${POD_NAME}
    Wait For Sync
    ${chassis}=    Northbound    get    Logical_Switch_Port    ${NAMESPACE}:${POD_NAME}    options:requested-chassis
    Should Be Equal    ${chassis}    node1
