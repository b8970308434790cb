*** Settings ***
Documentation       Nodes.
Resource            ../resources/entries.resource
Resource            ../resources/netvirt.resource

Suite Setup         Begin With Nothing
Test Teardown       Remove All Entries

Test Tags           nodes


*** Variables ***
&{NODES}            path=coe-netvirt:nodes    list=node    key=address


*** Test Cases ***
A Node Comes And Goes In Draft-02
    [Tags]    odl
    Entry Comes And Goes    ${DRAFT02}    ${NODE}

A Node Comes And Goes In RFC 8040
    Entry Comes And Goes    ${RFC8040}    ${NODE}

A Node Can Be Sent As XML
    XML Is Taken    ${DRAFT02}    ${NODE}
    Request    DELETE    ${DRAFT02.data}/${NODE.container}    expected=200
    XML Is Taken    ${RFC8040}    ${NODE}

The Model Knows The Node By Its Address
    ${body}=    Body    node.json
    Request    POST    ${DRAFT02.data}/${NODE.container}    ${body}    expected=204
    ${object}=    Wanted    ${NODES}    ${NODE_ADDRESS}
    Should Be Equal    ${object}[host-name]    node1
    Request    DELETE    ${DRAFT02.data}/${NODE.container}/k8s-nodes/${NODE_UID}    expected=200
    Gone    ${NODES}    ${NODE_ADDRESS}

Pods' Ports Are For The Node's Chassis
    [Tags]    ovn
    FOR    ${entity}    IN    ${NODE}    ${POD}
        ${body}=    Body    ${entity.body}
        Post    ${DRAFT02}    ${entity}    ${body}    204
    END
    Confirmed    ${INTERFACES}    ${NAMESPACE}:${POD_NAME}
    Wait For Sync
    ${chassis}=    Northbound    get    Logical_Switch_Port    ${NAMESPACE}:${POD_NAME}    options:requested-chassis
    Should Be Equal    ${chassis}    node1
